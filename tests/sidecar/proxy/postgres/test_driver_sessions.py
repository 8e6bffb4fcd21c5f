"""Each driver's session gives the same twice at the server itself: then it can be compared with one
through a sidecar. And each sees what it is there for: an error, a type, a notice."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.sidecar.proxy.postgres import driver_sessions
from tests.sidecar.proxy.postgres.driver_sessions import COPIES, SESSIONS, STORES
from tests.sidecar.proxy.postgres.drivers import of_stores
from tests.sidecar.proxy.postgres.drivers.transcript import Session, Transcript
from tests.support.postgres_source import Source, running_source

# What a session must have seen, if it divides nothing by zero.
SHOWN = {
    "psycopg, asynchronous": "QueryCanceled 57014",
    "psycopg, binary": "array as a parameter",
    "psycopg, server cursors": "InvalidCursorName 34000",
    "psycopg2, server cursors": "int 50005000",
}


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    # A sidecar turns parallel workers off: rows without an order may come in another one by them.
    with running_source(settings={"max_parallel_workers_per_gather": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def stores(source: Source) -> Source:
    if "vector" not in source.features:
        pytest.skip("this PostgreSQL has no pgvector")
    of_stores.fill(source)
    return source


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
@pytest.mark.parametrize("name", SESSIONS)
def test_a_drivers_session_can_be_compared(source: Source, name: str) -> None:
    shown = str(same(SESSIONS[name], source))
    assert SHOWN.get(name, "division by zero") in shown
    assert "no error" not in shown


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
def test_a_session_of_psql_can_be_compared(source: Source) -> None:
    seen = dict(same(driver_sessions.psql(source), source))
    assert re.search(r"public \| tickets +\| table", seen[r"\dt"])
    assert "ERROR:  22012: division by zero" in seen["a script"]


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
@pytest.mark.parametrize("session", COPIES.values(), ids=COPIES)
def test_a_driver_copies(source: Source, session: Session) -> None:
    seen = dict(same(session, source))
    assert "error" not in seen["copy"].replace("no error", "")
    assert "afterwards" in seen


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
def test_psql_copies(source: Source) -> None:
    seen = dict(same(driver_sessions.psql_copy(source), source))
    assert "Ticket 7" in seen["COPY tickets TO STDOUT"]


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
@pytest.mark.parametrize("session", STORES.values(), ids=STORES)
def test_a_stores_session_can_be_compared(stores: Source, session: Session) -> None:
    assert len(same(session, stores)) >= 4


def same(session: Session, source: Source) -> Transcript:
    """Return a transcript, after the session has given it twice."""
    first, second = session(source.login), session(source.login)
    assert first == second
    assert first
    return first
