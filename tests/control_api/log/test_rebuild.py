"""Lists and counts that were changed in the database are made anew from the log: the next
verification finds nothing, a second rebuild changes nothing, and the log says that it was done."""

from __future__ import annotations

import asyncio
import os
import random

import orjson
import pytest

from control_api.log import counts
from control_api.log import rebuild as rebuilt_counts
from control_api.log.commands import summary
from control_api.log.counts import compare_counts
from control_api.log.read import EventFilters, events
from control_api.log.rebuild import Rebuilt, rebuild
from control_api.log.scheduled.self_check import SelfChecker
from control_api.store.queries.leases import ASKED_FOR, count_checks, self_checks
from policies.trail.findings import Finding
from tests.control_api.log.purging import SIGNER, aged, fill, purge, valid
from tests.control_api.store.counters.test_counters import anything, kept, walked
from tests.support.open_store import TENANT, OpenStore, decision, event_id, sql

COLUMNS = (
    "UPDATE log_entries SET decision = 'ALLOW' WHERE decision = 'DENY' AND seq % 3 = 0",
    "UPDATE log_entries SET agent_role = NULL, ts = ts - 1 WHERE seq % 7 = 0",
    "UPDATE log_entries SET kind = 'note' WHERE kind = 'decision' AND seq % 5 = 0",
    "UPDATE openings SET user_id = 'u-2' WHERE seq % 4 = 0",
    "UPDATE log_entries SET eid = 'aside' WHERE seq = 2",
)
INDEX = (
    "DELETE FROM log_index WHERE value IN ('DENY', 's1')",
    "UPDATE log_spans SET first_ts = first_ts + 1 WHERE seq = 0",
    "DELETE FROM log_spans WHERE seq > 20",
)
COUNTS = (
    "UPDATE tallies SET denied = 0 WHERE facet = 0",
    "DELETE FROM tallies WHERE facet IN (1, 3, 6)",
    "UPDATE tallies SET value = 's3' WHERE facet = 5 AND value = 's1'",
    "INSERT INTO tallies SELECT tenant_id, 2, 'made-up', 5, 1, 1, 1 FROM tallies LIMIT 1",
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, small_steps: None) -> None:
    monkeypatch.setattr(rebuilt_counts, "VALUES", 60)
    monkeypatch.setattr(rebuilt_counts, "PAUSE", 0.0)


async def rebuilt(world: OpenStore) -> Rebuilt:
    return await rebuild(world.store, TENANT, event_id, lambda _: None)


async def compared(world: OpenStore) -> Finding | None:
    return await compare_counts(world.store, TENANT, os.urandom(32), 0.0)


async def spoil(world: OpenStore, *statements: str) -> None:
    for each in statements:
        await sql(world.url, each)


@pytest.mark.deep(stands_in="test_a_short_purged_log_is_rebuilt_beside_appends")
async def test_changed_rows_are_rebuilt_once(world: OpenStore) -> None:
    await fill(world, 50)
    everything = await events(world.store, TENANT, EventFilters(decision="DENY"), 1000)
    await spoil(world, *COLUMNS, *INDEX, *COUNTS)
    hidden = await events(world.store, TENANT, EventFilters(decision="DENY"), 1000)
    assert len(hidden.events) < len(everything.events)
    assert await compared(world) is not None
    done = await rebuilt(world)
    assert min(done.rows, done.spans, done.counts) > 0
    assert done.damaged == 0
    await valid(world)
    assert await compared(world) is None
    assert {key: row[:2] for key, row in (await kept(world)).items()} == {
        key: row[:2] for key, row in (await walked(world)).items()
    }
    assert await events(world.store, TENANT, EventFilters(decision="DENY"), 1000) == everything
    query = "SELECT seq, entry FROM log_entries WHERE kind = 'change' ORDER BY seq"
    begun, ended = [(row.seq, orjson.loads(row.entry)["pub"]) for row in await world.rows(query)]
    assert (begun[1]["what"], ended[1]["what"]) == ("log.rebuild_begun", "log.rebuilt")
    assert ended[0] == done.seq
    assert ended[1]["detail"] == {
        "rows": done.rows,
        "spans": done.spans,
        "counts": done.counts,
        "damaged": 0,
    }
    assert await rebuilt(world) == Rebuilt(0, 0, 0, 0, None)


async def test_two_entries_with_exchanged_ids_get_their_own_back(world: OpenStore) -> None:
    await fill(world, 40)
    rows = await world.rows("SELECT seq, eid FROM log_entries WHERE seq IN (1, 30) ORDER BY seq")
    first, other = (row.eid for row in rows)
    for seq, eid in ((1, "aside"), (30, first), (1, other)):
        await sql(world.url, "UPDATE log_entries SET eid = :e WHERE seq = :s", e=eid, s=seq)
    assert (await rebuilt(world)).damaged == 0
    await valid(world)


async def test_a_short_purged_log_is_rebuilt_beside_appends(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "RECOUNTED_ROWS", 7)
    await aged(world, 10, 30)
    await purge(world).run(TENANT)
    await spoil(world, *COLUMNS, *COUNTS, "UPDATE log_spans SET last_ts = 0")
    tasks: list[asyncio.Future[None]] = []

    async def appending() -> None:
        for _ in range(10):
            await world.log.append(TENANT, decision())

    def counting(_: str) -> None:
        tasks.append(asyncio.ensure_future(appending()))

    done = await rebuild(world.store, TENANT, event_id, counting)
    await asyncio.gather(*tasks)
    assert tasks
    assert min(done.rows, done.spans, done.counts) > 0
    await valid(world)
    assert await compared(world) is None
    assert await rebuilt(world) == Rebuilt(0, 0, 0, 0, None)


@pytest.mark.deep(stands_in="test_a_short_purged_log_is_rebuilt_beside_appends")
async def test_a_purged_log_is_rebuilt(world: OpenStore) -> None:
    await aged(world, 30, 40)
    await purge(world).run(TENANT)
    await spoil(world, *COLUMNS, *COUNTS, "UPDATE log_spans SET last_ts = 0")
    done = await rebuilt(world)
    assert done.rows > 0
    await valid(world)
    assert await compared(world) is None
    assert await rebuilt(world) == Rebuilt(0, 0, 0, 0, None)


@pytest.mark.deep(stands_in="test_a_short_purged_log_is_rebuilt_beside_appends")
async def test_a_rebuild_works_beside_appends_and_another_rebuild(world: OpenStore) -> None:
    await fill(world, 60)
    await spoil(world, *COLUMNS, *INDEX, *COUNTS)
    chance, stopping = random.Random(7), asyncio.Event()

    async def appending() -> None:
        while not stopping.is_set():
            await world.log.append(TENANT, decision(**anything(chance)))

    task = asyncio.create_task(appending())
    await rebuilt(world)
    stopping.set()
    await task
    await valid(world)
    assert await compared(world) is None


async def test_a_damaged_entry_is_not_rebuilt_and_is_named(world: OpenStore) -> None:
    await fill(world, 30)
    [row] = await world.rows("SELECT entry FROM log_entries WHERE seq = 3")
    forged = bytes(row.entry).replace(b'"kind":"decision"', b'"kind":"decisiom"')
    forged = forged if forged != bytes(row.entry) else bytes(row.entry) + b" "
    await sql(world.url, "UPDATE log_entries SET entry = :e WHERE seq = 3", e=forged)
    await spoil(world, "UPDATE log_entries SET ts = ts - 1 WHERE seq = 9", *COUNTS)
    before = await kept(world)
    done = await rebuilt(world)
    assert (done.rows, done.counts, done.damaged) == (1, 0, 1)
    [named] = done.findings
    assert (named.seq, named.reason) == (3, "hash_mismatch")
    assert summary(done).splitlines()[1:] == [f"  {named.text()}"]
    assert await kept(world) == before
    [row] = await world.rows("SELECT entry FROM log_entries WHERE seq = 3")
    assert bytes(row.entry) == forged


async def test_the_log_is_verified_again_after_a_rebuild(world: OpenStore) -> None:
    await fill(world, 4)
    checker = SelfChecker(world.store)
    state, more = await checker.step(TENANT, (SIGNER.public,))
    assert not more
    assert state is not None
    await rebuilt(world)
    async with world.store.reading(TENANT) as connection:
        state = await self_checks.state(connection, TENANT)
        counts = await count_checks.state(connection, TENANT)
    assert state is not None
    assert (state.started_at, counts.leased_until) == (0, ASKED_FOR)
