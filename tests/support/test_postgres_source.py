"""The data source of the tests says itself which relations a statement read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import postgres_wire as wire
from tests.support.postgres_source import Source, running_source
from tests.support.waiting import until


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with running_source() as running:
        yield running


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("SELECT title FROM tickets", {"public.tickets"}),
        ("SELECT 1 FROM pg_class", set()),
        (
            "SELECT who FROM api.view_of_view",
            {"api.view_of_view", "api.payroll_view", "secret.payroll"},
        ),
        # The function catches its own error, which takes the locks with it.
        ("SELECT api.peek_swallow_volatile_unsafe()", {"secret.payroll"}),
        # A parallel worker reads.
        (
            "SELECT api.peek_swallow_stable_safe(), * FROM numbers",
            {"public.numbers", "secret.payroll"},
        ),
        # It runs when it is planned, and the statement fails before it is executed.
        ("SELECT api.peek_plpgsql_immutable_safe(), 1/0", {"secret.payroll"}),
        ("SELECT upper(1)", {"secret.payroll"}),
    ],
)
def test_the_log_names_what_a_statement_read(
    source: Source, statement: str, read: set[str]
) -> None:
    since = source.mark()
    with wire.Connection(source.login) as connection:
        connection.extended(statement)
    assert source.relations_read(since) == read


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
def test_scans_count_what_has_no_plan(source: Source) -> None:
    before, since = source.scans(), source.mark()
    with wire.Connection(source.login) as connection:
        connection.simple("COPY secret.payroll TO STDOUT")
    until("the session has told its counts", source.idle)
    after = source.scans()
    assert source.relations_read(since) == set()
    assert {name for name, count in after.items() if count > before[name]} == {"secret.payroll"}


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
def test_every_byte_of_an_answer_is_kept(source: Source) -> None:
    with wire.Connection(source.login) as connection:
        answer = connection.simple("SELECT qpayee, qsalary FROM secret.payroll WHERE id = 7")
        kept = bytes(connection.received)
        assert connection.simple("SELECT nothing")[0].kind == "E"
    assert [message.kind for message in answer] == ["T", "D", "C", "Z"]
    assert wire.columns(answer[0].body) == ["qpayee", "qsalary"]
    assert wire.rows(answer) == [[b"SECRET_7f3a_payee_7", b"734100007"]]
    assert kept.endswith(b"".join(wire.frame(*message) for message in answer))


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
def test_a_wrong_password_is_refused(source: Source) -> None:
    with pytest.raises(wire.Refused) as refused:
        wire.Connection(source.login._replace(password="wrong"))
    assert refused.value.fields["C"] == "28P01"
