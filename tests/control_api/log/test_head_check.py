"""A log whose head does not match is never written to: the service does not start, or stops."""

from __future__ import annotations

import asyncio

import pytest

from control_api.log.append import Log
from control_api.log.verify import verify
from control_api.store.errors import UnknownState, WriteFault
from tests.support.open_store import TENANT, decision, opened, sql

ZERO = b"\0" * 32
WRONG = {
    "a size too small": "UPDATE log_heads SET size = size - 1",
    "a size too large": "UPDATE log_heads SET size = size + 1",
    "another leaf": "UPDATE log_heads SET last_leaf = :zero",
    "a frontier too short": "UPDATE log_heads SET frontier = :zero",
    "a frontier of other entries": "UPDATE log_heads SET frontier = :frontier",
    "the last entry gone": "DELETE FROM log_entries WHERE seq = 21",
    "the last entry changed": "UPDATE log_entries SET entry = :zero WHERE seq = 21",
    "every entry gone": "DELETE FROM log_entries",
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
async def test_the_service_does_not_start_on_a_wrong_head(either_url: str, change: str) -> None:
    async with opened(either_url) as world:
        for _ in range(22):
            await world.log.append(TENANT, decision())
    values = {"zero": ZERO, "frontier": ZERO * 3}
    used = {name: value for name, value in values.items() if f":{name}" in change}
    await sql(either_url, change, **used)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with opened(either_url):
            pass
    assert caught.group_contains(UnknownState, match="sluice/epoch/default")


async def _write_after(url: str, change: str, **values: bytes) -> None:
    async with opened(url) as world:
        await world.log.append(TENANT, decision())
        await world.rows(change, **values)
        with pytest.raises(WriteFault):
            await world.log.append(TENANT, decision())
        await asyncio.sleep(60)  # cancelled long before, when the service stops


async def test_the_service_stops_if_the_head_is_missing(either_url: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await _write_after(either_url, "DELETE FROM log_heads")
    assert caught.group_contains(UnknownState, match="has entries and no head")


async def test_the_service_stops_if_the_next_entry_exists(either_url: str) -> None:
    """Somebody inserted a row where the next entry belongs."""
    with pytest.raises(BaseExceptionGroup) as caught:
        await _write_after(
            either_url,
            "INSERT INTO log_entries (tenant_id, seq, eid, kind, ts, entry, hash) "
            "VALUES ('default', 1, 'x', 'change', 1, :bytes, :bytes)",
            bytes=ZERO,
        )
    assert caught.group_contains(UnknownState)


async def test_a_right_head_of_any_size_passes(sqlite_url: str) -> None:
    async with opened(sqlite_url) as world:
        for _ in range(20):
            await world.log.append(TENANT, decision())
            await Log.open(world.store)


@pytest.mark.deep(stands_in="test_a_right_head_of_any_size_passes")
async def test_the_service_starts_on_a_log_of_any_size(sqlite_url: str) -> None:
    for size in range(70):
        async with opened(sqlite_url) as world:
            assert (await world.log.append(TENANT, decision())).seq == size
            await Log.open(world.store)
    async with opened(sqlite_url) as world:
        assert (await verify(world.store, TENANT))["total"] == 70
