"""A real PostgreSQL 18 with TLS, for one module of tests, which says how it lets its users in.

The server of `postgres.py` comes from a wheel that is built without TLS.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deploy.local.sample_postgres import UNPRIVILEGED, open_to_all
from sidecar.settings.model import Pair
from tests import servers
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.postgres import FAST, ROOM, SUPERUSER
from tests.support.waiting import until


class TlsServer(NamedTuple):
    """A running server. Its roles have one password."""

    port: int
    password: str
    process: subprocess.Popen[bytes]

    def stop(self, how: signal.Signals) -> None:
        """Send a signal to the server's first process, and wait for its end."""
        self.process.send_signal(how)
        self.process.wait()


@contextlib.contextmanager
def running_postgres(
    shown: Pair, authority: Authority, access: list[str], sql: str
) -> Iterator[TlsServer]:
    """Run a server that shows a certificate and knows clients by those of `authority`. `access` are
    the lines of its `pg_hba.conf`; `sql` makes its roles, with `:password` for theirs. Skips the
    test where the program is absent."""
    program = servers.need("postgres-with-tls")
    with tempfile.TemporaryDirectory(prefix="sluice-postgres-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        password, copy, account = _make(program, folder, shown, authority, access, sql)
        with _started(folder, copy, password, account) as server:
            yield server


def _make(
    program: Path, folder: Path, shown: Pair, authority: Authority, access: list[str], sql: str
) -> tuple[str, Path, dict[str, Any]]:
    """Make a cluster. Returns the password of its roles, its programs, and the account to run them
    as."""
    home, copy = folder / "home", folder / "native"
    home.mkdir(mode=0o700)
    account: dict[str, Any] = {}
    shutil.copytree(program, copy)
    _link_libraries(copy)
    if os.geteuid() == 0:
        account = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
        open_to_all(copy)
    password, data = secrets.token_urlsafe(18), home / "data"
    (home / "password").write_text(password)
    for name, file in {"server.crt": shown.certificate, "server.key": shown.key}.items():
        shutil.copyfile(file, home / name)
    shutil.copyfile(authority.path, home / "ca.crt")
    (home / "server.key").chmod(0o600)
    _give_to(account, home)
    made = [f"--pgdata={data}", f"--username={SUPERUSER}", f"--pwfile={home / 'password'}"]
    made += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
    subprocess.run(
        [str(copy / "bin/initdb"), *made], check=True, cwd=home, capture_output=True, **account
    )
    _run_alone(copy / "bin/postgres", data, sql.replace(":password", f"'{password}'"), account)
    (data / "pg_hba.conf").write_text("\n".join(access) + "\n")
    return password, copy, account


@contextlib.contextmanager
def _started(
    folder: Path, copy: Path, password: str, account: dict[str, Any]
) -> Iterator[TlsServer]:
    home = folder / "home"
    tls = {"ssl": "on", "ssl_cert_file": home / "server.crt", "ssl_key_file": home / "server.key"}
    tls["ssl_ca_file"] = home / "ca.crt"
    port = free_port()
    settings = {"listen_addresses": "127.0.0.1", "port": port} | FAST | ROOM | tls
    options = [f"--{name}={value}" for name, value in settings.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(copy / "bin/postgres"), "-D", str(home / "data"), *options],
            cwd=home,
            stdout=log,
            stderr=log,
            **account,
        )
    try:
        until("the server is ready", lambda: _ready(folder / "log", process))
        yield TlsServer(port, password, process)
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def _link_libraries(copy: Path) -> None:
    """Make the links that the package's own script would make, as it was unpacked only."""
    links = json.loads((copy / "pg-symlinks.json").read_text())
    for link in links:
        target = copy.parent / link["target"]
        if not target.exists():
            target.symlink_to(Path(link["source"]).name)
    for file in (copy / "bin").iterdir():
        file.chmod(0o755)


def _give_to(account: dict[str, Any], home: Path) -> None:
    if account:
        for path in (home, *home.iterdir()):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)


def _run_alone(postgres: Path, data: Path, sql: str, account: dict[str, Any]) -> None:
    """Run statements, one a line, on a server that is not started yet."""
    command = [str(postgres), "--single", "-D", str(data), "postgres"]
    ran = subprocess.run(
        command, input=sql.encode(), check=True, cwd=data, capture_output=True, **account
    )
    assert b"ERROR" not in ran.stderr, ran.stderr.decode()


def _ready(log: Path, process: subprocess.Popen[bytes]) -> bool:
    said = log.read_text()
    assert process.poll() is None, said
    return "ready to accept connections" in said
