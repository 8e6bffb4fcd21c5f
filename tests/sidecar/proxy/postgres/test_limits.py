"""Each limit holds, the agent is told which, and the session or at least the sidecar goes on; also
when the right to read ends in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from sidecar.settings.postgres import ResultLimits
from tests.sidecar.proxy.postgres.watched import Watched, watched
from tests.support import postgres_wire as wire
from tests.support.postgres_source import LOGIN, Source, running_source
from tests.support.waiting import until

SLOW = "SELECT count(*) FROM generate_series(1, 2000000000) a, public.tickets"
SECONDS = 3


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with running_source() as running:
        running.execute(
            "CREATE VIEW public.seen AS SELECT n, repeat('x', 1000) AS wide FROM public.numbers;"
            f"GRANT SELECT ON public.seen TO {LOGIN}"
        )
        yield running


@pytest.fixture(scope="module")
def running(source: Source) -> Iterator[Watched]:
    limits = ResultLimits(hold=100_000, max_bytes=1_000_000, statement_seconds=SECONDS)
    with watched(source, result=limits) as made:
        yield made


def _codes(answer: list[wire.Message]) -> list[str]:
    return [each["C"] for each in wire.errors(answer)]


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT repeat(wide, 90) FROM public.seen", "54000"),
        ("SELECT wide FROM public.seen", "54000"),
        ("SELECT label, repeat('x', 1000) FROM public.numbers", "54000"),
        (SLOW, "57014"),
        ("SELECT " + "1+" * 600_000 + "1", "42601"),
        ("SELECT 1 FROM " + ", ".join(f"public.tickets t{n}" for n in range(65)), None),
    ],
)
def test_a_statement_beyond_a_limit_fails_and_the_session_goes_on(
    running: Watched, source: Source, sql: str, code: str | None
) -> None:
    with wire.Connection(running.address) as connection:
        answer = connection.simple(sql)
        assert len(_codes(answer)) == 1, _codes(answer)
        assert code is None or _codes(answer) == [code]
        assert answer[-1] == ("Z", b"I")
        assert wire.rows(connection.simple("SELECT 1")) == [[b"1"]]
    until("no session is left", source.idle)


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
def test_a_row_that_is_too_long_ends_the_session_without_its_length(running: Watched) -> None:
    with wire.Connection(running.address) as connection:
        answer = connection.simple("SELECT repeat(wide, 1000) FROM public.seen")
        [told] = wire.errors(answer)
        assert told["C"] in ("54000", "08006")
        assert "1,000,0" not in told["M"]
    with wire.Connection(running.address) as connection:
        assert wire.rows(connection.simple("SELECT 1")) == [[b"1"]]


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
def test_a_frozen_server_is_given_up(running: Watched, source: Source) -> None:
    with wire.Connection(running.address) as connection:
        sql = f"SELECT pid FROM pg_stat_activity WHERE usename = '{LOGIN}'"
        [[pid]] = source.execute(sql)
        os.kill(int(pid or 0), signal.SIGSTOP)
        try:
            [told] = wire.errors(connection.simple("SELECT 1"))
        finally:
            os.kill(int(pid or 0), signal.SIGCONT)
    assert (told["C"], told["S"]) == ("08006", "FATAL")
    until("no session is left", source.idle)


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize("what", ["key", "policy"])
def test_a_revocation_stops_what_runs(source: Source, what: str) -> None:
    with watched(source) as made, wire.Connection(made.address) as connection:
        connection.send_raw(wire.query(SLOW))
        running = f"usename = '{LOGIN}' AND state = 'active' AND now() - query_start > '0.3 s'"
        counted = f"SELECT count(*) FROM pg_stat_activity WHERE {running}"
        until("the statement runs", lambda: source.execute(counted) == [["1"]])
        if what == "key":
            made.publish(made.made.key_document, None)
        else:
            made.allow("postgres://crm/crm/public/tickets")
        assert _codes(connection.messages()) == ["42501"]
        assert [each[0] for each in made.decisions()][-1] == "DENY"


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
def test_a_server_without_a_free_connection_says_so() -> None:
    with running_source(settings={"max_connections": "8"}) as small, watched(small) as made:
        taken: list[wire.Connection] = []
        with pytest.raises(wire.Refused) as refused:
            taken.extend(wire.Connection(made.address) for _ in range(20))
        assert refused.value.fields["C"] == "53300"
        for each in taken:
            each.close()
