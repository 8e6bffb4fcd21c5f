"""The comparison of counts with the log: true logs give no finding, whatever goes on beside it, and
a count that was changed does."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from control_api.log import counts
from control_api.log.counts import EntriesMoved, Recount, compare_counts
from control_api.log.ingest import ingest
from control_api.log.judging import Judge, Lookup
from control_api.log.scheduled import asked_logs, loop
from control_api.log.scheduled.loop import CountChecker
from control_api.store.queries.leases import ASKED_FOR, CountCheck, count_checks
from control_api.store.transaction import Transaction
from policies.definitions.model import Key
from policies.trail.findings import Finding
from tests.control_api.log.erasing import erase
from tests.control_api.log.purging import DAY, aged, fill, purge
from tests.control_api.store.counters.test_counters import anything, filled
from tests.support.open_store import TENANT, OpenStore, Spool, decision, event_id, opened, sql


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, small_steps: None) -> None:
    monkeypatch.setattr(counts, "RECOUNTED_ROWS", 7)
    monkeypatch.setattr(counts, "MAX_LEFT", 3)


async def compared(world: OpenStore) -> Finding | None:
    return await compare_counts(world.store, TENANT, os.urandom(32), 0.0)


async def deliver(world: OpenStore, spool: Spool, payload: dict[str, Any]) -> None:
    """As the key of a sidecar that speaks for the agent `a1` alone."""

    async def nothing(*_: Any) -> dict[str, Any]:
        return {}

    key = Key("key_1", "sidecar", agent_ids=("a1",), sidecar_ids=("*",))
    lookup = Lookup(nothing, nothing)
    place = (spool.source, spool.instance)
    judge = Judge(key, *place, world.now(), DAY, event_id, lookup)
    await ingest(world.store, TENANT, *place, [payload], judge=judge)


async def test_the_counts_of_a_true_log_give_no_finding(world: OpenStore) -> None:
    """Records that arrived late, from the future, at a doubtful time, of a foreign agent, refused
    ones and erased ones."""
    assert await compared(world) is None
    await filled(world, records=12)
    ahead = Spool("sidecar-2")
    payload = ahead.record(decision("DENY", agent_id="a1"), at=world.now() + DAY)
    await ingest(world.store, TENANT, ahead.source, ahead.instance, [payload])
    spool = Spool("sidecar-3")
    for verdict, agent, at in (
        ("DENY", "a2", world.now()),
        ("ALLOW", "a2", world.now()),
        ("DENY", "a1", world.now() - 3 * DAY),
    ):
        payload = spool.record(decision(verdict, agent_id=agent, session_id="s9"), at=at)
        await deliver(world, spool, payload)
    query = "SELECT kind, entry FROM log_entries ORDER BY seq DESC LIMIT 3"
    doubtful, refused, foreign = await world.rows(query)
    assert b"time_doubtful" in doubtful.entry
    assert b"agent_foreign" in foreign.entry
    assert refused.kind == "rejected_record"
    made = await world.log.append(TENANT, decision())
    await erase(world, made.eid)
    assert await compared(world) is None

    async def growing() -> None:
        await world.log.append(TENANT, decision())

    assert await compare_counts(world.store, TENANT, os.urandom(32), 0.0, growing) is None


@pytest.mark.deep(stands_in="test_a_purge_between_walk_and_snapshot_is_no_finding")
async def test_a_purge_gives_no_finding(world: OpenStore) -> None:
    """Time buckets still count what was purged; others don't."""
    await aged(world, 10, 10)
    assert await compared(world) is None
    await purge(world).run(TENANT)
    assert await compared(world) is None
    # All is old: what is left counts nothing.
    world.now.ahead += 3 * DAY
    await purge(world).run(TENANT)
    assert await compared(world) is None


async def test_a_purge_between_walk_and_snapshot_is_no_finding(world: OpenStore) -> None:
    await aged(world, 8, 8)
    walk = Recount(world.store, TENANT, lambda _: None, 0.0)
    await walk.walk()
    await purge(world).run(TENANT)
    async with world.store.snapshot(TENANT) as connection:
        with pytest.raises(EntriesMoved):
            await walk.close(connection)
    assert await compared(world) is None


@pytest.mark.deep(stands_in="test_the_counts_of_a_true_log_give_no_finding")
async def test_concurrent_appends_of_two_replicas_give_no_finding(world: OpenStore) -> None:
    await fill(world, 20)
    chance, stopping = random.Random(7), asyncio.Event()

    async def appending(replica: OpenStore) -> int:
        done = 0
        while not stopping.is_set():
            await replica.log.append(TENANT, decision(**anything(chance)))
            done += 1
        return done

    async with opened(world.url) as other:
        tasks = [asyncio.create_task(appending(each)) for each in (world, other)]
        found = [await compared(world) for _ in range(2)]
        stopping.set()
        assert all(await asyncio.gather(*tasks))
    assert found == [None] * 2
    assert await compared(world) is None


CHANGES = {
    "UPDATE tallies SET denied = denied + 1 WHERE facet = 0": "source_type",
    # The sums over all values stay as they are.
    "UPDATE tallies SET allowed = allowed + length(value) - 6 WHERE facet = 1": "agent_role",
    "DELETE FROM tallies WHERE facet = 3": "agent",
    "UPDATE tallies SET bucket = bucket - 100 WHERE facet = 7 AND value = ''": "minute",
    "UPDATE tallies SET value = 's3' WHERE facet = 5 AND value = 's1'": "session",
    (
        "INSERT INTO tallies SELECT tenant_id, 2, 'made-up', 5, 1, 1, 1 FROM tallies LIMIT 1"
    ): "source_id",
}
"""Each with the counts that it changes."""


async def test_a_count_that_was_changed_is_found(world: OpenStore) -> None:
    await fill(world, 10)
    await each_is_found(world)


async def each_is_found(world: OpenStore) -> None:
    """Each change of a count, until it is undone."""
    await sql(world.url, "CREATE TABLE kept AS SELECT * FROM tallies")
    for change, facet in CHANGES.items():
        await sql(world.url, change)
        found = await compared(world)
        assert found is not None, change
        assert found.text().startswith(f"column_mismatch: the counts by `{facet}`"), found
        await sql(world.url, "DELETE FROM tallies")
        await sql(world.url, "INSERT INTO tallies SELECT * FROM kept")
        assert await compared(world) is None


@pytest.mark.deep(stands_in="test_a_count_that_was_changed_is_found")
async def test_each_change_of_a_count_is_found_until_it_is_undone(world: OpenStore) -> None:
    await fill(world, 40)
    await each_is_found(world)


async def test_an_unreadable_entry_is_reported(world: OpenStore) -> None:
    await fill(world, 5)
    await sql(world.url, "UPDATE log_entries SET entry = :e WHERE seq = 2", e=b"{}")
    found = await compared(world)
    assert found is not None
    assert (found.seq, found.text().partition(":")[0]) == (2, "not_an_entry")


async def test_counts_are_compared_once_a_day_and_on_request(world: OpenStore) -> None:
    checker = CountChecker(world.store, os.urandom, 0.0)
    await fill(world, 4)
    first = await checker.step(TENANT)
    assert (first.reason, first.leased_until) == (None, None)
    await sql(world.url, "UPDATE tallies SET allowed = allowed + 1 WHERE facet = 1")
    assert await checker.step(TENANT) == first

    async def ask(tx: Transaction) -> None:
        await count_checks.ask(tx.connection, TENANT)

    await world.store.write(TENANT, ask)
    asked = await checker.step(TENANT)
    assert (asked.reason or "").startswith("column_mismatch: the counts by `agent_role` are ")
    await sql(world.url, "UPDATE tallies SET allowed = allowed - 1 WHERE facet = 1")
    assert (await checker.step(TENANT)).reason == asked.reason
    world.now.ahead += DAY
    assert (await checker.step(TENANT)).reason is None


async def test_only_one_process_at_a_time_compares_counts(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = CountChecker(world.store, os.urandom, 0.0)
    await fill(world, 30)
    until = world.now() + DAY

    async def claim(tx: Transaction) -> None:
        assert await count_checks.claim(tx.connection, TENANT, CountCheck(), world.now(), until)

    await world.store.write(TENANT, claim)
    state = await checker.step(TENANT)
    assert (state.checked_at, state.leased_until) == (None, until)
    world.now.ahead += 2 * DAY
    # It is renewed while the comparison goes on, unless somebody asks for another one.
    monkeypatch.setattr(loop, "LEASE", 1)
    monkeypatch.setattr(asked_logs, "LEASE", 1)
    assert (await checker.step(TENANT)).checked_at is not None
    world.now.ahead += DAY
    before, compare = world.now(), compare_counts

    async def asked_meanwhile(*args: Any) -> Finding | None:
        async def ask(tx: Transaction) -> None:
            await count_checks.ask(tx.connection, TENANT)

        await world.store.write(TENANT, ask)
        return await compare(*args)

    monkeypatch.setattr(loop, "compare_counts", asked_meanwhile)
    state = await checker.step(TENANT)
    assert state.checked_at is not None
    assert (state.checked_at < before, state.leased_until) == (True, ASKED_FOR)
