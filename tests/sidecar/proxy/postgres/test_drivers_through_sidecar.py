"""Each driver's session gives the same through a sidecar as at the server itself, except for what
`DIFFERS` names."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.sidecar.proxy.postgres import driver_sessions
from tests.sidecar.proxy.postgres.driver_sessions import COPIES, SESSIONS, STORES
from tests.sidecar.proxy.postgres.drivers import of_stores
from tests.sidecar.proxy.postgres.drivers.transcript import Session
from tests.sidecar.proxy.postgres.in_front import sidecar_in_front
from tests.support.postgres_source import Source, running_source
from tests.support.postgres_wire import Address

# What is noted: a part of what is seen through the sidecar instead.
DIFFERS = {
    # The sidecar reads every text first, and says all that it can't read by one SQLSTATE.
    "bad text": "42601: invalid byte sequence for encoding",
    # A statement of the simple protocol runs as one of the extended, whose portal the server lists.
    "open cursors": "SELECT name, statement FROM pg_cursors",
    # `RESET ALL` returns to the limit of the source (`result.statement_seconds`).
    "reset": "30s",
}
_DECISION = re.compile(
    r"\n?(?:DETAIL:  )?\{\"decision\":\"DENY\",\"policy_name\":\"unreadable_request\",.*\"\}"
)


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    # The sidecar turns parallel workers off: rows without an order may come in another one by them.
    with running_source(settings={"max_parallel_workers_per_gather": "0"}) as running:
        if "vector" in running.features:
            of_stores.fill(running)
        yield running


@pytest.fixture(scope="module")
def through(source: Source) -> Iterator[Address]:
    with sidecar_in_front(source) as address:
        yield address


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize("name", SESSIONS)
def test_a_driver_sees_the_same_through_a_sidecar(
    source: Source, through: Address, name: str
) -> None:
    check_same(SESSIONS[name], source, through)


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
def test_psql_sees_the_same_through_a_sidecar(source: Source, through: Address) -> None:
    check_same(driver_sessions.psql(source), source, through)


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize("session", STORES.values(), ids=STORES)
def test_a_store_sees_the_same_through_a_sidecar(
    source: Source, through: Address, session: Session
) -> None:
    if "vector" not in source.features:
        pytest.skip("this PostgreSQL has no pgvector")
    check_same(session, source, through)


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize("session", COPIES.values(), ids=COPIES)
def test_copy_is_refused_and_the_session_goes_on(through: Address, session: Session) -> None:
    seen = dict(session(through))
    assert "`COPY` is closed" in seen["copy"]
    assert "0A000" in seen["copy"]
    assert re.search("[13]", seen["afterwards"])


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
def test_copy_is_refused_in_psql(source: Source, through: Address) -> None:
    for value in dict(driver_sessions.psql_copy(source)(through)).values():
        assert "0A000: `COPY` is closed" in value


def check_same(session: Session, source: Source, through: Address) -> None:
    """Fail unless a session sees the same, but for `DIFFERS`."""
    direct, seen = session(source.login), session(through)
    assert [what for what, _ in seen] == [what for what, _ in direct]
    for (what, expected), (_, value) in zip(direct, seen, strict=True):
        differs = DIFFERS.get(what.removesuffix(", by a script"))
        # What can't be read as SQL is a decision, and the detail tells it.
        if differs is None or differs not in value:
            assert (what, _DECISION.sub("", value)) == (what, told(expected, value))


def told(expected: str, value: str) -> str:
    """Return what a session is expected to see, without the detail that the server didn't send."""
    # psycopg and SQLAlchemy note that there is none.
    return expected.replace(" None None", "  None") if '"decision"' in value else expected
