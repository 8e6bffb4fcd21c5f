"""Verification finds every change of what is stored, and where it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from control_api.log import scan
from control_api.log.ingest import ingest
from control_api.log.verify import verify
from control_api.store.log import index as log_index
from tests.runner import tiers
from tests.support.open_store import (
    TENANT,
    OpenStore,
    Spool,
    action,
    decision,
    opened,
    sql,
)

SIZE = 40
"""Entries of the tampered log: decisions, lineage actions and a sidecar's records."""

TAMPERED = {
    # Every column of an entry. Entry 8 is a decision.
    "seq": "UPDATE log_entries SET seq = 4000 WHERE seq = 8",
    "seq, text": "UPDATE log_entries SET seq = seq + 100000 WHERE seq = 8",
    "eid": "UPDATE log_entries SET eid = 'other' WHERE seq = 8",
    "kind": "UPDATE log_entries SET kind = 'change' WHERE seq = 8",
    "ts": "UPDATE log_entries SET ts = ts + 1 WHERE seq = 8",
    "agent_role": "UPDATE log_entries SET agent_role = 'admin' WHERE seq = 8",
    "agent_role gone": "UPDATE log_entries SET agent_role = NULL WHERE seq = 8",
    "agent_id": "UPDATE log_entries SET agent_id = 'agt_other' WHERE seq = 8",
    "source_id": "UPDATE log_entries SET source_id = 'payroll' WHERE seq = 8",
    "decision": "UPDATE log_entries SET decision = 'DENY' WHERE seq = 8",
    "policy_name": "UPDATE log_entries SET policy_name = 'other' WHERE seq = 8",
    "session_id": "UPDATE log_entries SET session_id = 's-2' WHERE seq = 8",
    "ref": "UPDATE log_entries SET ref = 'other' WHERE seq = 8",
    "entry": "UPDATE log_entries SET entry = :zero WHERE seq = 8",
    "entry of another": (
        "UPDATE log_entries SET entry = (SELECT entry FROM log_entries WHERE seq = 12), "
        "hash = (SELECT hash FROM log_entries WHERE seq = 12) WHERE seq = 8"
    ),
    "hash": "UPDATE log_entries SET hash = :zero WHERE seq = 8",
    # Its openings.
    "opening, user": "UPDATE openings SET user_id = 'u-2' WHERE seq = 8",
    "opening, user gone": "UPDATE openings SET user_id = NULL WHERE seq = 8",
    "opening, bytes": "UPDATE openings SET openings = :zero WHERE seq = 8",
    "opening, empty": "UPDATE openings SET openings = :empty WHERE seq = 8",
    "opening, another's": (
        "UPDATE openings SET openings = (SELECT openings FROM openings WHERE seq = 12), "
        "user_id = (SELECT user_id FROM openings WHERE seq = 12) WHERE seq = 8"
    ),
    "opening, deleted": "DELETE FROM openings WHERE seq = 8",
    # Rows.
    "deleted": "DELETE FROM log_entries WHERE seq = 8",
}


@contextlib.asynccontextmanager
async def logged(url: str) -> AsyncIterator[OpenStore]:
    async with opened(url) as world:
        for number in range(SIZE // 4):
            fields = {"agent_id": "agt_1", "session_id": "s-1", "user_id": f"u-{number}"}
            event = await world.log.append(TENANT, decision(**fields))
            await world.log.append(TENANT, action(event.eid, event.leaf_hash, number))
        spool = Spool()
        await ingest(world.store, TENANT, spool.source, spool.instance, spool.records(SIZE // 2))
        answer = await verify(world.store, TENANT)
        assert answer["valid"], answer
        assert (answer["total"], answer["first_seq"], answer["last_seq"]) == (SIZE, 0, SIZE - 1)
        yield world


async def tamper(world: OpenStore, statement: str) -> dict[str, Any]:
    values = {"zero": b"\0" * 32, "empty": b"{}"}
    used = {name: value for name, value in values.items() if f":{name}" in statement}
    await sql(world.url, statement, **used)
    return await verify(world.store, TENANT)


@tiers.rotating(0, 4)
@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED.keys())
async def test_a_changed_entry_is_found_at_its_place(either_url: str, statement: str) -> None:
    async with logged(either_url) as world:
        (row,) = await world.rows("SELECT eid FROM log_entries WHERE seq = 8")
        answer = await tamper(world, statement)
        assert not answer["valid"]
        (next_row,) = await world.rows("SELECT eid FROM log_entries WHERE seq = 9")
        # A missing row shows at the next one; a changed entry is named by the id in its bytes.
        (copied,) = await world.rows("SELECT eid FROM log_entries WHERE seq = 12")
        assert answer["broken_at"] in {row.eid, next_row.eid, copied.eid, "other", "8"}
        assert "seq 8" in answer["reason"] or "seq 9" in answer["reason"]
        # That an opening is missing is certain only at the end: a `redact` entry may follow.
        missing = answer["reason"].startswith("opening_missing: ")
        assert answer["total"] == (SIZE if missing else 8)


async def test_rows_at_a_wrong_place_and_a_senseless_head_are_found(world: OpenStore) -> None:
    for _ in range(4):
        await world.log.append(TENANT, decision())
    answer = await tamper(world, "UPDATE log_entries SET tenant_id = 'ten_other' WHERE seq = 1")
    assert (answer["valid"], answer["total"]) == (False, 1)
    assert not (await verify(world.store, "ten_other"))["valid"]
    await sql(world.url, "UPDATE log_entries SET tenant_id = 'default'")
    for old, new in ((1, -5), (2, 1), (-5, 2)):
        await sql(world.url, f"UPDATE log_entries SET seq = {new} WHERE seq = {old}")
    answer = await verify(world.store, TENANT)
    assert (answer["valid"], answer["total"]) == (False, 1)
    # SQLite does not enforce column types.
    for size in ("'x'", "-1", "9e99", "1e30") if world.url.startswith("sqlite") else ("-1",):
        assert not (await tamper(world, f"UPDATE log_heads SET size = {size}"))["valid"]


@pytest.mark.deep(stands_in="test_rows_at_a_wrong_place_and_a_senseless_head_are_found")
async def test_a_row_moved_to_another_tenant_is_reported_missing(either_url: str) -> None:
    async with logged(either_url) as world:
        answer = await tamper(world, "UPDATE log_entries SET tenant_id = 'ten_other' WHERE seq = 8")
        assert (answer["valid"], answer["total"]) == (False, 8)
        assert not (await verify(world.store, "ten_other"))["valid"]


HEADS = {
    "log": "UPDATE log_heads SET log = 'sluice/other/default'",
    "size, less": "UPDATE log_heads SET size = size - 1",
    "size, more": "UPDATE log_heads SET size = size + 1",
    "last_leaf": "UPDATE log_heads SET last_leaf = :zero",
    "last_ts": "UPDATE log_heads SET last_ts = last_ts + 1",
    "frontier": "UPDATE log_heads SET frontier = :zero",
    "gone": "DELETE FROM log_heads",
    "of another tenant": "UPDATE log_heads SET tenant_id = 'ten_other'",
    "first deleted": "DELETE FROM log_entries WHERE seq = 0",
    "first ten deleted": "DELETE FROM log_entries WHERE seq < 10",
    "last deleted": f"DELETE FROM log_entries WHERE seq = {SIZE - 1}",
    "all deleted": "DELETE FROM log_entries",
    "one added": (
        "INSERT INTO log_entries (tenant_id, seq, eid, kind, ts, entry, hash) "
        f"VALUES ('default', {SIZE}, 'x', 'change', 1, :zero, :zero)"
    ),
    "one before the first": (
        "INSERT INTO log_entries (tenant_id, seq, eid, kind, ts, entry, hash) "
        "VALUES ('default', -1, 'x', 'change', 1, :zero, :zero)"
    ),
    "an opening added": (
        "INSERT INTO openings (tenant_id, seq, user_id, openings) "
        f"VALUES ('default', {SIZE}, 'x', :zero)"
    ),
}


@tiers.rotating(0, 4)
@pytest.mark.parametrize("statement", HEADS.values(), ids=HEADS.keys())
async def test_a_change_at_an_end_or_of_the_head_is_found(either_url: str, statement: str) -> None:
    async with logged(either_url) as world:
        answer = await tamper(world, statement)
        assert not answer["valid"]
        assert answer["broken_at"] is not None
        assert answer["reason"]


@pytest.mark.deep(stands_in="test_an_empty_log_is_valid")
async def test_removing_the_newest_rows_with_the_head_goes_undetected(
    either_url: str,
) -> None:
    """No database can show this by itself: checkpoints stored outside it do."""
    async with logged(either_url) as world:
        for table in ("log_entries", "openings", "log_heads", "log_index", "log_spans"):
            await sql(world.url, f"DELETE FROM {table}")
        answer = await verify(world.store, TENANT)
        assert (answer["valid"], answer["total"]) == (True, 0)


@pytest.mark.deep(stands_in="test_rows_at_a_wrong_place_and_a_senseless_head_are_found")
async def test_swapped_rows_are_found(either_url: str) -> None:
    async with logged(either_url) as world:
        for statement in (
            "UPDATE log_entries SET seq = -5 WHERE seq = 8",
            "UPDATE log_entries SET seq = 8 WHERE seq = 12",
        ):
            await sql(world.url, statement)
        answer = await tamper(world, "UPDATE log_entries SET seq = 12 WHERE seq = -5")
        assert (answer["valid"], answer["total"]) == (False, 8)


@pytest.mark.deep(stands_in="test_rows_at_a_wrong_place_and_a_senseless_head_are_found")
@pytest.mark.parametrize("size", ["'x'", "-1", "9e99", "1e30"])
async def test_an_invalid_head_is_found(sqlite_url: str, size: str) -> None:
    """SQLite does not enforce column types."""
    async with logged(sqlite_url) as world:
        assert not (await tamper(world, f"UPDATE log_heads SET size = {size}"))["valid"]


async def test_an_empty_log_is_valid(world: OpenStore) -> None:
    answer = await verify(world.store, TENANT)
    assert answer["valid"]
    assert answer["total"] == 0
    assert answer["head_hash"] is None
    assert answer.keys() == {
        *("valid", "total", "events", "first_seq", "last_seq", "head_hash", "broken_at"),
        *("reason", "anchor", "checkpoint", "checked_at"),
    }


async def test_pages_of_few_entries_give_the_same_answer(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(
        *(world.log.append(TENANT, decision(query="x" * (n * 200))) for n in range(12))
    )
    whole = await verify(world.store, TENANT)
    monkeypatch.setattr(scan, "PAGE_BYTES", 3000)
    monkeypatch.setattr(scan, "FIRST_ROWS", 1)
    small = await verify(world.store, TENANT)
    assert (whole["valid"], whole["total"]) == (True, 12)
    assert {**small, "checked_at": ""} == {**whole, "checked_at": ""}


@pytest.mark.deep(stands_in="test_pages_of_few_entries_give_the_same_answer")
async def test_pages_of_any_size_give_the_same_answer(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(
        *(world.log.append(TENANT, decision(query="x" * (n * 40))) for n in range(300))
    )
    whole = await verify(world.store, TENANT)
    monkeypatch.setattr(scan, "PAGE_BYTES", 20_000)
    monkeypatch.setattr(scan, "FIRST_ROWS", 1)
    small = await verify(world.store, TENANT)
    assert whole["valid"]
    assert {**small, "checked_at": ""} == {**whole, "checked_at": ""}


async def test_a_log_that_grows_during_verification_is_valid(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_ROWS", 16)
    monkeypatch.setattr(scan, "FIRST_ROWS", 16)
    await asyncio.gather(*(world.log.append(TENANT, decision()) for _ in range(100)))
    growing = True

    async def grow() -> None:
        while growing:
            await world.log.append(TENANT, decision())

    writers = [asyncio.ensure_future(grow()) for _ in range(8)]
    totals = []
    for _ in range(5):
        answer = await verify(world.store, TENANT)
        assert answer["valid"], answer
        totals.append(answer["total"])
    growing = False
    await asyncio.gather(*writers)
    assert totals == sorted(totals)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "BLOCK", 16)
    monkeypatch.setattr(log_index, "STEP", 2)


HIDDEN = {
    "agent_role": "DELETE FROM log_index WHERE facet = 0 AND seq = 8",
    "another value": "UPDATE log_index SET value = 'other' WHERE facet = 5 AND seq = 8",
    "user": "DELETE FROM log_index WHERE facet = 6 AND seq = 8",
    "everything": "DELETE FROM log_index",
    "a span": "DELETE FROM log_spans WHERE seq = 14",
    "a span's times": "UPDATE log_spans SET last_ts = 0 WHERE seq = 14",
    "a span's end": "UPDATE log_spans SET until_seq = 29 WHERE seq = 14",
}


@tiers.rotating(0, 4)
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("statement", HIDDEN.values(), ids=HIDDEN.keys())
async def test_an_event_hidden_from_lists_is_found(either_url: str, statement: str) -> None:
    async with logged(either_url) as world:
        answer = await tamper(world, statement)
        assert not answer["valid"]
        assert "index" in answer["reason"]
