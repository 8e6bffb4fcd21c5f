"""What was changed in the database turns the page of a decision red, and names it: on SQLite and on
PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.async_api import expect

from tests.control_api.console.browser.visitors import sign_in
from tests.support import migrated, postgres
from tests.support.browser_tabs import Tabs
from tests.support.browsing import watching
from tests.support.control_api import ControlApi, asked, running_control_api
from tests.support.open_store import sql
from tests.support.run_servers import SERVERS
from tests.support.waiting import until

Tamper = Callable[["Tampered", str], None]
_BATCH, _BATCHES = 50, 11


class Tampered:
    """A log of more than two complete subtrees, and an insider's hand in its database."""

    def __init__(self, api: ControlApi, url: str) -> None:
        self.api = api
        self._url = url
        part = {"items": [asked()] * _BATCH, "semantics": "all"}
        self.early = [
            each["event_id"]
            for _ in range(_BATCHES)
            for each in api.admin("POST", "/v1/context/evaluate/batch", part)["results"]
        ]

    def signed(self) -> str:
        """A new decision that a checkpoint covers."""
        event_id: str = self.api.evaluate()["event_id"]
        path = f"/v1/audit/proof/{event_id}"
        until("a checkpoint", lambda: self.api.call("GET", path).status == 200)
        return event_id

    def sql(self, statement: str, **values: Any) -> list[Any]:
        return asyncio.run(sql(self._url, statement, **values))

    def seq(self, event_id: str) -> int:
        return int(self.sql("SELECT seq FROM log_entries WHERE eid = :eid", eid=event_id)[0][0])

    def replace(self, table: str, column: str, seq: int, old: bytes, new: bytes) -> None:
        found = self.sql(f"SELECT {column} FROM {table} WHERE seq = :seq", seq=seq)
        held = bytes(found[0][0])
        assert old in held
        update = f"UPDATE {table} SET {column} = :held WHERE seq = :seq"
        self.sql(update, held=held.replace(old, new), seq=seq)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def log(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tampered]:
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"SLUICE_CHECKPOINT_SECONDS": "1"}
    if request.param == "sqlite":
        with running_control_api(folder, **settings) as api:
            yield Tampered(api, f"sqlite:///{folder}/data/sluice.db")
        return
    with migrated.database(*request.config.stash[SERVERS]) as owned:
        url = postgres.serving(owned)
        with running_control_api(folder, database_url=url, **settings) as api:
            yield Tampered(api, url)


async def _red(log: Tampered, tabs: Tabs, tamper: Tamper, event_id: str = "") -> str:
    """What the page says of an event after it was tampered with; it must be red and name it. The
    reader signs in first: that is an entry too, which the next checkpoint covers."""
    async with watching(tabs, log.api.console) as watched:
        # The service may refuse the proof or the page, which the browser's console notes.
        watched.faults.expect("")
        tab = await watched.page()
        await sign_in(tab, log.api.admin_key)
        event_id = event_id or await asyncio.to_thread(log.signed)
        await asyncio.to_thread(tamper, log, event_id)
        await tab.goto(f"/console/decision?id={event_id}")
        told = tab.locator("main .notice.bad").first
        await expect(told).to_contain_text("FAILED")
        await expect(told).to_contain_text(event_id)
        return await told.inner_text()


def _opening(log: Tampered, event_id: str) -> None:
    """Another user's name in place of the one that was hashed."""
    log.replace("openings", "openings", log.seq(event_id), b'"ann"', b'"bob"')


def _entry(log: Tampered, event_id: str) -> None:
    """Another source in the entry's bytes."""
    log.replace("log_entries", "entry", log.seq(event_id), b'"handbook"', b'"contract"')


def _hash(log: Tampered, event_id: str) -> None:
    """Another hash beside the entry."""
    log.sql("UPDATE log_entries SET hash = :hash WHERE eid = :eid", hash=b"\1" * 32, eid=event_id)


def _swapped(log: Tampered, event_id: str) -> None:
    """Another event's entry under this event's id, which the service then proves."""
    log.sql(
        "UPDATE log_entries SET eid = :aside WHERE eid = :eid", aside=f"a{event_id}", eid=event_id
    )
    log.sql(
        "UPDATE log_entries SET eid = :eid WHERE eid = :other", eid=event_id, other=log.early.pop()
    )


def _deleted(log: Tampered, event_id: str) -> None:
    seq = log.seq(event_id)
    for table in ("openings", "log_entries"):
        log.sql(f"DELETE FROM {table} WHERE seq = :seq", seq=seq)


def _node(log: Tampered, _: str) -> None:
    """A node beside the path, of a subtree that is complete."""
    changed = "UPDATE tree_nodes SET hash = :hash WHERE level = 1 AND place = 0"
    log.sql(changed, hash=b"\1" * 32)


def _checkpoint(log: Tampered, _: str) -> None:
    """Another size in the text that was signed."""
    newest = "SELECT number, size, note FROM checkpoints ORDER BY number DESC LIMIT 1"
    number, size, note = log.sql(newest)[0]
    changed = note.replace(f"\n{size}\n", f"\n{size + 1}\n")
    assert changed != note
    log.sql(
        "UPDATE checkpoints SET note = :note WHERE number = :number", note=changed, number=number
    )


@pytest.mark.deep(
    stands_in="tests/control_api/console/browser/test_journeys.py::test_a_tampered_row_turns_the_page_red_and_the_overview_names_it"
)
@pytest.mark.parametrize("tamper", [_opening, _entry, _hash, _swapped])
async def test_a_tampered_row_turns_the_page_red_and_is_named(
    log: Tampered, tabs: Tabs, tamper: Tamper
) -> None:
    await _red(log, tabs, tamper)


async def test_a_deleted_row_turns_the_page_red(log: Tampered, tabs: Tabs) -> None:
    assert "was deleted from the log" in await _red(log, tabs, _deleted)
    # The log's other decisions, and ids that it never had, are what they were.
    answers = [
        log.api.call("GET", f"/v1/audit/events/{each}") for each in ("nothing", log.early[0])
    ]
    assert [each.status for each in answers] == [404, 200]


@pytest.mark.deep(
    stands_in="tests/control_api/console/browser/test_journeys.py::test_a_tampered_row_turns_the_page_red_and_the_overview_names_it"
)
async def test_a_changed_node_turns_the_page_red(log: Tampered, tabs: Tabs) -> None:
    found = await asyncio.to_thread(lambda: {log.seq(each): each for each in log.early[250:450]})
    seq = next(each for each in found if 256 <= each < 512)
    assert f"entry {seq}" in await _red(log, tabs, _node, found[seq])


@pytest.mark.deep(
    stands_in="tests/control_api/console/browser/test_journeys.py::test_a_tampered_row_turns_the_page_red_and_the_overview_names_it"
)
async def test_a_changed_checkpoint_turns_the_page_red(log: Tampered, tabs: Tabs) -> None:
    assert "checkpoint" in await _red(log, tabs, _checkpoint)
