"""A durable PostgreSQL that a fault may kill, stop, or replace by an older copy of itself or by a
synchronous standby. Knows nothing of Sluice."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from deploy.local.sample_postgres import UNPRIVILEGED, installed, within_reach
from tests.support import postgres, waiting

SETTINGS = {**postgres.ROOM, "listen_addresses": "127.0.0.1", "wal_level": "replica"}


class Postgres:
    """One server with one database, `sluice`, whose owner is an ordinary role."""

    def __init__(self, folder: Path, port: int, programs: Path | None = None) -> None:
        self.port = port
        self.settings = dict(SETTINGS)
        self._of_system = programs is not None
        self._folder = folder
        self._data = folder / "data"
        self._password = secrets.token_urlsafe(18)
        self._account: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._binaries = programs or installed()

    def url(self, role: str, *ports: int) -> str:
        """The database by way of this port; with several, of the one whose server may write."""
        known = f"postgresql+asyncpg://{role}:{self._password}@"
        if len(ports) == 1:
            return f"{known}127.0.0.1:{ports[0]}/sluice"
        hosts = "&".join(f"host=127.0.0.1:{port}" for port in ports)
        return f"{known}/sluice?{hosts}&target_session_attrs=read-write"

    def make(self) -> None:
        self._folder.mkdir(mode=0o711)
        if os.geteuid() == 0:
            user = UNPRIVILEGED
            self._account = {"user": user, "group": user, "extra_groups": []}
            if not self._of_system:
                self._binaries = within_reach(self._binaries, self._folder)
            os.chown(self._folder, user, user)
        secret = self._folder / "password"
        secret.write_text(self._password)
        secret.chmod(0o644)
        made = [f"--pgdata={self._data}", "--username=super", f"--pwfile={secret}"]
        made += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", *made)
        self.start()
        for role in (postgres.OWNER, postgres.SERVICE):
            self._sql(f"CREATE ROLE {role} LOGIN PASSWORD '{self._password}'")
        self._sql(f"CREATE DATABASE sluice OWNER {postgres.OWNER}")

    def start(self) -> None:
        """Start the server; retried while processes of the previous one are still ending."""
        deadline = time.monotonic() + waiting.PATIENCE
        while time.monotonic() < deadline:
            (self._data / "postmaster.pid").unlink(missing_ok=True)
            options = [f"--{name}={value}" for name, value in self.settings.items()]
            self._process = subprocess.Popen(
                [self._bin("postgres"), "-D", str(self._data), f"--port={self.port}", *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self._folder,
                start_new_session=True,
                **self._account,
            )
            while self._process.poll() is None and time.monotonic() < deadline:
                ready = self._run("pg_isready", "--quiet", *self._place(), check=False)
                if ready.returncode == 0:
                    return
                time.sleep(0.05)
            time.sleep(0.2)
        raise AssertionError("PostgreSQL does not start")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        assert self._process is not None
        main = self._process.pid
        # Its processes leave its group. The first goes first, so that it starts no more of them.
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for process in (main, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if number is signal.SIGKILL:
            self._process.wait()

    def copy(self) -> Path:
        """A copy of its data, made while it runs."""
        copy = self._folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        self._run("pg_basebackup", f"--pgdata={copy}", "--checkpoint=fast", *self._place())
        return copy

    def put_back(self, copy: Path) -> None:
        """Kill it, and start it again on the copy."""
        self.signal(signal.SIGKILL)
        shutil.rmtree(self._data)
        copy.rename(self._data)
        self.start()

    def standby(self, port: int) -> Postgres:
        """A server that has every transaction before its commit is answered."""
        made = Postgres(self._folder.with_name(f"standby-{port}"), port)
        made._folder.mkdir(mode=0o711)
        made._password, made._account, made._binaries = (
            self._password,
            self._account,
            self._binaries,
        )
        if self._account:
            os.chown(made._folder, UNPRIVILEGED, UNPRIVILEGED)
        copied = [f"--pgdata={made._data}", "--checkpoint=fast", "--write-recovery-conf"]
        self._run("pg_basebackup", *copied, *self._place())
        made.start()
        self._sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._sql("SELECT pg_reload_conf()")
        replicas = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        waiting.until("the standby is synchronous", lambda: self._sql(replicas) == "1")
        return made

    def run_script(self, commands: str, database: str) -> None:
        """Run commands as the superuser; the first that fails ends them."""
        place = [*self._place(), "--no-psqlrc", "--set=ON_ERROR_STOP=1", database]
        self._run("psql", *(f"--command={each}" for each in commands.split(";\n")), *place)

    def promote(self) -> None:
        """Make a standby the primary."""
        self._sql("SELECT pg_promote()")

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGKILL)

    def _place(self) -> list[str]:
        return ["--host=127.0.0.1", f"--port={self.port}", "--username=super"]

    def _sql(self, statement: str) -> str:
        place = [*self._place(), "--no-psqlrc", "--tuples-only", "--no-align", "postgres"]
        return self._run("psql", f"--command={statement}", *place).stdout.decode().strip()

    def _bin(self, name: str) -> str:
        return str(self._binaries / name)

    def _run(
        self, name: str, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [self._bin(name), *arguments],
            env=os.environ | {"PGPASSWORD": self._password},
            cwd=self._folder,
            capture_output=True,
            check=False,
            **self._account,
        )
        assert not check or done.returncode == 0, done.stderr.decode()
        return done
