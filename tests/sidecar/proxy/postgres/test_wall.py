"""No way to read the payroll gets anything of it through a sidecar that denies it: no value, no
column, no bit. Each is tried by both protocols, alone and inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.settings.postgres import AllowedFunctions
from tests.sidecar.proxy.postgres import runner, ways
from tests.sidecar.proxy.postgres.in_front import sidecar_in_front
from tests.support.postgres_source import Source, running_source
from tests.support.postgres_wire import Address

WAYS = ways.load()
FAMILIES = sorted({way.family for way in WAYS})
DENIED = (
    "postgres://crm/crm/secret/*",
    # Copies of the payroll are relations of their own: the operator has to deny them by name.
    "postgres://crm/crm/api/payroll_copy",
    "postgres://crm/crm/api/view_of_copy",
    "postgres://crm/crm/cast_aside/*",
)
# It reads the table's file: what reads by other ways than relations must not be allowed.
UNSEEN = "peek_file"
# The server draws the numbers by chance where no seed was set.
BY_CHANCE = "stash: seed"
_NAMES = (
    "SELECT nspname || '.' || proname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace"
)


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with running_source() as running:
        runner.prepare(WAYS, running)
        yield running


@pytest.fixture(scope="module", params=["deny", "allow"])
def address(source: Source, request: pytest.FixtureRequest) -> Iterator[Address]:
    """Yield where a sidecar listens that denies or allows writes, and denies the payroll."""
    found = source.execute(f"{_NAMES} WHERE nspname IN ('api', 'public')")
    functions = tuple(str(name) for [name] in found if not str(name).endswith(UNSEEN))
    with sidecar_in_front(
        source, DENIED, writes=request.param, functions=AllowedFunctions(functions)
    ) as listening:
        yield listening


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/postgres/test_session.py::"
    "test_a_statement_is_judged_by_what_the_server_reads"
)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_way_leads_to_what_is_denied(source: Source, address: Address, family: str) -> None:
    wrong = []
    for way in WAYS:
        if way.family != family or not runner.applies(way, source):
            continue
        if way.look == "open" or str(way) == BY_CHANCE:
            continue
        for mode in runner.modes(way):
            tried = runner.tried(way, mode, source, address)
            # A count or a time can't be told from what was sent: there must be a denial.
            shown = way.shows in ("value", "column", "bit") or all(
                seen.errors() for seen in tried.seen
            )
            if tried.leaks() or not shown:
                wrong.append(f"{way}, {mode}: {tried.leaks()[:6]}")
    assert not wrong, "\n".join(wrong)
