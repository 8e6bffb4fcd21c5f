"""A real PgBouncer in transaction mode, in front of a test's PostgreSQL.

Few sessions serve all clients, in turn, so that a client seldom gets the session of its transaction
before: code that depends on a session fails at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from deploy.local.sample_postgres import UNPRIVILEGED, open_to_all
from sidecar.settings.model import Pair
from tests import servers
from tests.programs import sources
from tests.support import waiting
from tests.support.ports import free_port

SESSIONS = 4


@contextlib.contextmanager
def before(url: str, sessions: int = SESSIONS, tls: Pair | None = None) -> Iterator[str]:
    """Yield the URL of the same database by way of a PgBouncer. Skips the test if there is none.
    With `tls`, it shows this certificate, and refuses clients without TLS, as a server does."""
    program, direct, port = servers.need("pgbouncer"), make_url(url), free_port()
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": "users.txt",
        "pool_mode": "transaction",
        "default_pool_size": sessions,
        "server_round_robin": 1,
        "max_client_conn": 200,
    }
    with tempfile.TemporaryDirectory(prefix="sluice-pgbouncer-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # it refuses to run as root
        (folder / "users.txt").write_text(f'"{direct.username}" "{direct.password}"\n')
        if tls is not None:
            settings |= _tls(tls, folder)
        lines = [f"{name} = {value}" for name, value in settings.items()]
        database = f"{direct.database} = host={direct.host} port={direct.port}"
        sections = ["[databases]", database, "[pgbouncer]", *lines]
        (folder / "pgbouncer.ini").write_text("\n".join(sections) + "\n")
        account: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = {"user": UNPRIVILEGED, "group": UNPRIVILEGED}
            program = _within_reach(program, folder)
            for file in folder.iterdir():
                if file.is_file():
                    file.chmod(0o644)  # whatever the umask
        with (folder / "pgbouncer.log").open("wb") as log:
            process = subprocess.Popen(
                [str(program), "pgbouncer.ini"], cwd=folder, stdout=log, stderr=log, **account
            )
        try:
            waiting.until("PgBouncer listens", lambda: _listens(port, process))
            yield direct.set(port=port).render_as_string(hide_password=False)
        finally:
            process.kill()
            process.wait()


def _tls(pair: Pair, folder: Path) -> dict[str, Any]:
    certificate = shutil.copyfile(pair.certificate, folder / "server.crt")
    key = shutil.copyfile(pair.key, folder / "server.key")
    return {
        "client_tls_sslmode": "require",
        "client_tls_cert_file": certificate,
        "client_tls_key_file": key,
    }


def _within_reach(program: Path, folder: Path) -> Path:
    """Return a copy of a fetched program that `nobody` can run: the checkout may lie in a home
    directory. A program of the system stays where it is."""
    fetched = sources.folder("pgbouncer")
    if not program.is_relative_to(fetched):
        return program
    copy = folder / "fetched"
    shutil.copytree(fetched, copy, symlinks=True)
    open_to_all(copy)
    script = copy / program.relative_to(fetched)
    script.write_text(script.read_text().replace(str(fetched), str(copy)))
    return script


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "PgBouncer ended"
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True
