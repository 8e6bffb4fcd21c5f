"""Sessions of psql: its commands that ask the catalog, errors, scripts, cursors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.sidecar.proxy.postgres.drivers.transcript import Recorder, Transcript
from tests.support.postgres_wire import Address

# Not those with a `+` for tables: they ask for sizes, which are closed.
COMMANDS = (
    r"\d", r"\dt", r"\dv api.*", r"\dm api.*", r"\d tickets", r"\d kinds", r"\d api.payroll_view",
    r"\di", r"\dn", r"\df api.search*", r"\dT", r"\dD", r"\du", r"\dp tickets", r"\dx", r"\ds",
    r"\sf api.search_articles", r"\encoding", r"\l",
)  # fmt: skip
TEXTS = (
    "SELECT id, title FROM tickets WHERE id < 4 ORDER BY id",
    "TABLE kinds",
    "SELECT 1/0",
    "SELECT nothing FROM tickets",
    "SELEC 1",
    "BEGIN; SELECT 1; COMMIT",
    "SHOW server_encoding",
    "SELECT count(*) FROM numbers",
    "EXPLAIN (COSTS off) SELECT * FROM tickets WHERE id = 1",
)
SCRIPT = r"""\set FETCH_COUNT 700
SELECT n FROM numbers ORDER BY n;
\gset
BEGIN;
SAVEPOINT s;
SELECT 1/0;
ROLLBACK TO s;
SELECT 'after' AS savepoint;
COMMIT;
SELECT title FROM tickets WHERE id = $1 \bind 5 \g
\echo :ENCODING :LAST_ERROR_SQLSTATE
SELECT title, opened FROM tickets WHERE id < 3 \gx
SELECT 'a' AS x, 'b' AS y, 3 AS n \crosstabview
SELECT title FROM tickets LIMIT 0 \gdesc
ROLLBACK;
"""


def session(programs: Path, address: Address) -> Transcript:
    """Run psql from a folder of programs."""
    seen = Recorder()
    for command in (*COMMANDS, *TEXTS):
        seen.note(command, _run(programs, address, ["--command", command]))
    seen.note("a script", _run(programs, address, ["--file", "-"], SCRIPT))
    return seen.transcript


def copy(programs: Path, address: Address) -> Transcript:
    r"""Run `COPY` and `\copy`, which a sidecar refuses."""
    seen = Recorder()
    for command in ("COPY tickets TO STDOUT", r"\copy tickets TO STDOUT", "COPY notes FROM STDIN"):
        seen.note(command, _run(programs, address, ["--command", command]))
    return seen.transcript


def _run(programs: Path, address: Address, arguments: list[str], said: str = "") -> str:
    place = ["--host", address.host, "--port", str(address.port), "--username", address.user]
    quiet = [
        "--no-psqlrc",
        "--no-password",
        "--set",
        "VERBOSITY=verbose",
        "--set",
        "SHOW_CONTEXT=never",
    ]
    ran = subprocess.run(
        [str(programs / "psql"), *place, *quiet, "--dbname", address.database, *arguments],
        input=said,
        env=os.environ
        | {"PGPASSWORD": address.password, "PGSSLMODE": "disable", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    # Where in its source the server raised the error is no part of what is compared.
    errors = [line for line in ran.stderr.splitlines() if not line.startswith("LOCATION:")]
    return "\n".join([f"exit {ran.returncode}", ran.stdout, *errors])
