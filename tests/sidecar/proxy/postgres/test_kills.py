"""Whatever dies at whatever step: nothing is released without a record, no transaction and no
computing backend is left, the agent is told what happened, and a new connection works."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.sidecar.proxy.postgres.watched import Watched, watched
from tests.support import postgres_wire as wire
from tests.support.postgres_source import LOGIN, Source, running_source
from tests.support.relay import Relay, relaying
from tests.support.waiting import until

SLOW = "SELECT count(*) FROM generate_series(1, 2000000000) a, public.tickets"
KILL = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{LOGIN}'"


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with running_source() as running:
        running.execute(
            "CREATE VIEW public.open_tickets AS SELECT id FROM public.tickets;"
            f"GRANT SELECT ON public.open_tickets TO {LOGIN}"
        )
        yield running


@pytest.fixture(scope="module")
def relay(source: Source) -> Iterator[Relay]:
    with relaying(source.login.port) as running:
        yield running


@pytest.fixture(scope="module")
def running(source: Source, relay: Relay) -> Iterator[Watched]:
    with watched(source, port=relay.port) as made:
        yield made


Step = Callable[[wire.Connection], None]


def _idle(connection: wire.Connection) -> None:
    assert not wire.errors(connection.simple("SELECT 1"))


def _transaction(connection: wire.Connection) -> None:
    connection.simple("BEGIN")
    assert not wire.errors(connection.simple("SELECT id FROM public.tickets"))


def _parsed(connection: wire.Connection) -> None:
    connection.send_raw(wire.parse("SELECT title FROM public.tickets") + wire.flush())
    connection.messages("1E")


def _bound(connection: wire.Connection) -> None:
    _parsed(connection)
    connection.send_raw(wire.bind() + wire.describe("P") + wire.flush())
    connection.messages("TE")


def _batch(connection: wire.Connection) -> None:
    """A view is read in batches; the agent takes one row and has not sent `Sync`."""
    sql = "SELECT id FROM public.open_tickets"
    connection.send_raw(wire.parse(sql) + wire.bind() + wire.execute(rows=1) + wire.flush())
    connection.messages("sCE")


def _computing(connection: wire.Connection) -> None:
    connection.send_raw(wire.query(SLOW))


STEPS: list[Step] = [_idle, _transaction, _parsed, _bound, _batch, _computing]


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("death", ["backend", "network", "agent"])
def test_a_death_leaves_nothing_behind(
    source: Source, relay: Relay, running: Watched, step: Step, death: str
) -> None:
    connection = wire.Connection(running.address)
    step(connection)
    if step is _computing:
        until("the statement runs", lambda: _active(source))
    if death == "agent":
        connection.close()
    else:
        if death == "backend":
            source.execute(KILL)
        else:
            relay.cut()
        [told] = wire.errors(connection.messages("E"))
        assert told["C"] == ("57P01" if death == "backend" else "08006")
        assert told["S"] == "FATAL"
        with pytest.raises((wire.Closed, ConnectionError)):
            connection.receive()
        relay.mend()
    until("no session is left", source.idle)
    with wire.Connection(running.address) as again:
        [[count]] = wire.rows(again.simple("SELECT count(*) FROM public.tickets"))
        assert count == b"200"
    until("no session is left", source.idle)


def _active(source: Source) -> bool:
    sql = (
        f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{LOGIN}' AND state = 'active'"
        " AND now() - query_start > '0.3 s'"
    )
    return source.execute(sql) == [["1"]]


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
def test_a_key_that_is_not_the_sessions_cancels_nothing(source: Source, running: Watched) -> None:
    with wire.Connection(running.address) as one, wire.Connection(running.address) as other:
        one.send_raw(wire.query(SLOW))
        until("the statement runs", lambda: _active(source))
        other.cancel()
        one_key, one.key = one.key, (one.key[0], bytes(4))
        one.cancel()
        assert _active(source)
        one.key = one_key
        one.cancel()
        assert [each["C"] for each in wire.errors(one.messages())] == ["57014"]
        assert wire.rows(one.simple("SELECT 1")) == [[b"1"]]


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize(
    "sql", ["SELECT id FROM public.tickets", "SELECT id FROM public.open_tickets"]
)
def test_a_session_stays_usable_whenever_it_is_cancelled(
    source: Source, running: Watched, sql: str
) -> None:
    with wire.Connection(running.address) as connection:
        expected = wire.rows(connection.simple(sql))
        for number in range(150):
            for opening in ("", "BEGIN"):
                if opening:
                    connection.simple(opening)
                connection.send_raw(wire.query(sql))
                with contextlib.suppress(ConnectionError):
                    connection.cancel()
                answer = connection.messages()
                if opening:
                    answer += connection.simple("ROLLBACK")
                codes = {each["C"] for each in wire.errors(answer)}
                assert codes <= {"57014"}, (number, codes)
                assert answer[-1] == ("Z", b"I"), number
        # A cancel may meet the statement behind the one that it was meant for.
        until("the session answers", lambda: wire.rows(connection.simple(sql)) == expected)
    until("no session is left", source.idle)
