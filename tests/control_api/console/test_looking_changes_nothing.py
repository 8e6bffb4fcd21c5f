"""A GET of the console changes nothing: a link, a preview or a prefetch can do no harm."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from control_api.console.page import Page
from control_api.console.pages import PAGES
from tests.control_api.console.addresses import address_of
from tests.control_api.console.reader import Visitor
from tests.runner import tiers
from tests.support.company_week import CompanyWeek
from tests.support.control_api import SUPERADMIN
from tests.support.waiting import until

LOOKS = [page for page in PAGES if page.method == "GET" and page.path != "/console/decisions/live"]
"""The live tail goes on until its reader leaves; it asks as `/console/decisions` does."""
BY_ITSELF = {
    # What the service writes in the background.
    "checkpoints", "cosignatures", "self_checks", "count_checks", "export_progress", "alert_state",
    "leases", "log_heads",
}  # fmt: skip
ACTIONS = ("done", "confirm", "delete", "status", "action", "session_id", "to", "realm", "csrf")


@pytest.fixture(scope="module")
def visitors(world: CompanyWeek) -> dict[str, Visitor]:
    return {
        "admin": Visitor(world.api).sign_in(world.api.admin_key),
        "superadmin": Visitor(world.api).sign_in(SUPERADMIN),
        "anyone": Visitor(world.api),
    }


@pytest.fixture(scope="module")
def settled(world: CompanyWeek) -> CompanyWeek:
    """The world, once the jobs that it began have ended."""
    running = "SELECT count(*) FROM impact_runs WHERE state = 'running'"
    until("the measurements of impact have ended", lambda: read(world, running) == [(0,)])
    return world


def read(world: CompanyWeek, statement: str) -> list[tuple[object, ...]]:
    path = Path(world.api.settings.data_dir) / "sluice.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return list(connection.execute(statement))


def rows(world: CompanyWeek) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table; of a session only that there is one, as its use is noted, of the
    counts only those for all time, as the others expire, and no heartbeat of a log."""
    listed = read(world, "SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = [str(name) for (name,) in listed if name not in BY_ITSELF]
    parts = {
        "console_sessions": "session_id FROM console_sessions",
        "log_entries": "* FROM log_entries WHERE kind <> 'heartbeat'",
        "tallies": "* FROM tallies WHERE bucket = 0",
    }
    return {name: read(world, "SELECT " + parts.get(name, f'* FROM "{name}"')) for name in tables}


@tiers.rotating(0, 3)
@pytest.mark.parametrize("page", LOOKS, ids=lambda page: page.path)
def test_a_get_changes_nothing(
    settled: CompanyWeek, visitors: dict[str, Visitor], page: Page
) -> None:
    address = address_of(page.path)
    visitor, target = visitors[address.by], address.of(page, settled)
    before = rows(settled)
    mark = "&" if "?" in target else "?"
    for tried in (target, target + mark + "&".join(f"{name}=1" for name in ACTIONS)):
        for method in ("GET", "HEAD"):
            visitor.send(method, tried, None, {})
    assert rows(settled) == before
