"""The ways to read the payroll are real: asked itself, the server shows what each is said to show.

A way that finds nothing at the server proves nothing behind a sidecar.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sidecar.proxy.postgres import runner, ways
from tests.support.postgres_source import Source, running_source

WAYS = ways.load()
FAMILIES = sorted({way.family for way in WAYS})


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with running_source() as running:
        runner.prepare(WAYS, running)
        yield running


@pytest.mark.deep(stands_in="tests/support/test_postgres.py::test_a_connection_needs_the_password")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_server_shows_what_a_way_asks_for(source: Source, family: str) -> None:
    wrong = [
        f"{way}, {mode}: {_told(tried)}"
        for way in WAYS
        if way.family == family and runner.applies(way, source)
        for mode in runner.modes(way)
        if not _as_said(tried := runner.tried(way, mode, source, source.login))
    ]
    assert not wrong, "\n".join(wrong)


def _as_said(tried: runner.Tried) -> bool:
    # What is looked for behind a sidecar finds what it is there for.
    marked = tried.way.shows in ("value", "column", "bit")
    found = bool(tried.leaks()) if marked and tried.way.leaks else tried.shows()
    return tried.shows() == found == tried.way.leaks


def _told(tried: runner.Tried) -> str:
    found = "shows" if tried.shows() else "doesn't show"
    errors = [error.get("M") for seen in tried.seen for error in seen.errors()]
    return f"it {found} `{tried.way.shows}`, with the errors {errors}"
