"""While relations, schemas, functions and policies change, no row of the payroll is ever read.
`RACE_SECONDS` says for how long it is tried."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

import pytest

from tests.sidecar.proxy.postgres import runner
from tests.sidecar.proxy.postgres.watched import Watched, watched
from tests.support import postgres_wire as wire
from tests.support.postgres_source import LOGIN, Source, running_source

SECONDS = float(os.environ.get("RACE_SECONDS", "15"))
COLUMNS = "id, qpayee, qsalary"
SETUP = f"""
    CREATE SCHEMA racing;
    CREATE TABLE racing.open AS
        SELECT n AS id, 'payee ' || n AS qpayee, n AS qsalary FROM generate_series(1, 300) AS n;
    CREATE VIEW racing.changing AS SELECT {COLUMNS} FROM racing.open;
    CREATE TABLE public.swapped AS SELECT {COLUMNS} FROM racing.open;
    GRANT USAGE ON SCHEMA racing, secret TO {LOGIN};
    GRANT SELECT ON ALL TABLES IN SCHEMA racing, secret, public TO {LOGIN};
"""
CHANGES = (
    f"CREATE OR REPLACE VIEW racing.changing AS SELECT {COLUMNS} FROM secret.payroll",
    f"CREATE OR REPLACE VIEW racing.changing AS SELECT {COLUMNS} FROM racing.open",
    f"""BEGIN; DROP TABLE public.swapped; CREATE VIEW public.swapped AS SELECT {COLUMNS} FROM
    secret.payroll; GRANT SELECT ON public.swapped TO {LOGIN}; COMMIT""",
    f"""BEGIN; DROP VIEW public.swapped; CREATE TABLE public.swapped AS SELECT {COLUMNS} FROM
    racing.open; GRANT SELECT ON public.swapped TO {LOGIN}; COMMIT""",
    """CREATE OR REPLACE FUNCTION public.upper(varchar) RETURNS text LANGUAGE sql STABLE AS
    'SELECT qpayee FROM secret.payroll LIMIT 1'; CREATE OR REPLACE FUNCTION public.abs(smallint)
    RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT qsalary FROM secret.payroll LIMIT 1'""",
    "DROP FUNCTION public.upper(varchar); DROP FUNCTION public.abs(smallint)",
    f"ALTER ROLE {LOGIN} SET search_path = cast_aside, public",
    f"ALTER ROLE {LOGIN} RESET search_path",
    f"REVOKE SELECT ON racing.changing FROM {LOGIN}",
    f"GRANT SELECT ON racing.changing TO {LOGIN}",
    "BEGIN; ALTER SCHEMA racing RENAME TO raced; ALTER SCHEMA raced RENAME TO racing; COMMIT",
)
READS = (
    "SELECT id, 'x' FROM public.swapped",
    "SELECT * FROM public.swapped",
    "SELECT * FROM racing.changing",
    "SELECT * FROM swapped WHERE id < 5",
    "SELECT upper('x'::varchar), abs(1::smallint), t.title FROM tickets t WHERE id < 3",
    "SELECT c.*, t.id FROM racing.changing c JOIN public.tickets t USING (id)",
)


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with running_source() as running:
        running.execute(SETUP)
        yield running


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
def test_nothing_that_was_not_decided_is_read_while_all_changes(source: Source) -> None:
    with watched(source) as made:
        told = race(source, made, SECONDS)
    assert not told.found, told.found[:10]
    assert told.answered > SECONDS
    assert told.changed > SECONDS


class Told:
    """What a race has shown: the values of the payroll that were found, and counts."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.answered = self.refused = self.changed = 0


def race(source: Source, made: Watched, seconds: float) -> Told:
    """Read and change for some seconds."""
    told, end = Told(), time.monotonic() + seconds

    def change() -> None:
        number = 0
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # what is there already, or is locked
                source.execute("SET lock_timeout = '1s';" + CHANGES[number % len(CHANGES)])
                told.changed += 1
            number += 1

    def revoke() -> None:
        while time.monotonic() < end:
            made.allow("postgres://crm/crm/racing/*")
            time.sleep(0.2)
            made.allow()
            time.sleep(0.4)

    def read(number: int) -> None:
        while time.monotonic() < end:
            with contextlib.suppress(wire.Refused), wire.Connection(made.address) as connection:
                _reads(connection, number, told, end)

    threads = [threading.Thread(target=each) for each in (change, revoke)]
    threads += [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return told


def _reads(connection: wire.Connection, number: int, told: Told, end: float) -> None:
    """Read by one session: simple, extended, prepared once, or in transactions."""
    if number == 2:
        for at, sql in enumerate(READS):
            connection.send_raw(wire.parse(sql, f"p{at}") + wire.sync())
            connection.messages()
    for turn in range(60):
        sql = READS[turn % len(READS)]
        if time.monotonic() > end:
            return
        before = len(connection.received)
        if number == 0:
            answer = connection.simple(sql)
        elif number == 2:
            sent = wire.bind(name=f"p{turn % len(READS)}") + wire.describe("P")
            connection.send_raw(sent + wire.execute() + wire.sync())
            answer = connection.messages()
        else:
            if number == 3:
                connection.simple("BEGIN")
            answer = connection.extended(sql, rows=50 if number == 3 else 0)
            if number == 3:
                answer += connection.simple("ROLLBACK")
        received = bytes(connection.received[before:])
        told.found += [f"{sql}: {each!r}" for each in runner.VALUES.findall(received)]
        told.refused += bool(wire.errors(answer))
        told.answered += not wire.errors(answer)
