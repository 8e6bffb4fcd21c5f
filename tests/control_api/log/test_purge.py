"""A purge removes the entries that are old enough, and the rest still verifies."""

from __future__ import annotations

import random
from typing import Any

import pytest

from control_api.log import read
from control_api.log.append import Log
from control_api.log.purge import PurgeResult
from control_api.log.search import EventFilters
from control_api.log.verify import verify
from policies.ground.signing import Signer
from tests.control_api.log.purging import DAY, aged, fill, keep_days, purge, seqs, valid
from tests.control_api.store.counters.test_counters import kept, walked
from tests.support.open_store import OTHER, TENANT, OpenStore, opened

pytestmark = pytest.mark.usefixtures("small_steps")


async def test_a_purge_removes_old_entries_and_the_rest_verifies(world: OpenStore) -> None:
    await aged(world, 100, 50)
    before = await world.rows("SELECT seq, entry, hash FROM log_entries ORDER BY seq")
    assert (await valid(world))["anchor"] is None
    outcome = await purge(world).run(TENANT)
    assert outcome.removed == 100
    assert await seqs(world) == list(range(100, 151))
    after = await world.rows("SELECT seq, entry, hash FROM log_entries WHERE seq < 150")
    assert {tuple(row) for row in after} == {tuple(row) for row in before if row.seq >= 100}
    answer = await valid(world)
    assert (answer["total"], answer["first_seq"], answer["last_seq"]) == (51, 100, 150)
    anchor = answer["anchor"]
    assert anchor["last_seq"] == 99
    assert anchor["last_hash"] == before[99].hash.hex()
    assert (anchor["tree_size"], anchor["purged_count"]) == (100, 100)
    assert answer["checkpoint"]["size"] == 151
    assert answer["checkpoint"]["note"].startswith("sluice/epoch/default\n151\n")
    for table in ("openings", "log_index"):
        assert await world.rows(f"SELECT seq FROM {table} WHERE seq < 100") == []
    assert await world.rows("SELECT seq FROM log_spans WHERE until_seq <= 100") == []
    assert await world.rows("SELECT seq FROM log_spans WHERE until_seq > 100") != []
    # Signed by another key than the log's, it would be no purge.
    answer = await verify(world.store, TENANT, (Signer(b"\1" * 32).public,))
    assert (answer["valid"], answer["anchor"]) == (False, None)
    assert "not signed by the log's key" in answer["reason"]


@pytest.mark.deep(stands_in="test_a_purge_removes_old_entries_and_the_rest_verifies")
async def test_all_other_rows_of_a_purged_entry_are_removed(world: OpenStore) -> None:
    await aged(world, 100, 150)
    await purge(world).run(TENANT)
    for table in ("openings", "log_index"):
        assert await world.rows(f"SELECT seq FROM {table} WHERE seq < 100") == []
    assert await world.rows("SELECT seq FROM log_spans WHERE until_seq <= 100") == []
    assert await world.rows("SELECT seq FROM log_spans WHERE until_seq > 100") != []


async def test_the_counts_match_the_entries_that_are_left(world: OpenStore) -> None:
    await aged(world, 120, 60)
    await purge(world).run(TENANT)
    forgotten = {3, 4, 6, 7, 8, 9}  # time buckets expire by age

    def of_all_time(counts: dict[tuple[int, str, int], list[int]]) -> dict[Any, Any]:
        return {key: row[:2] for key, row in counts.items() if key[0] not in forgotten}

    assert of_all_time(await kept(world)) == of_all_time(await walked(world))


async def test_young_entries_and_those_kept_forever_are_not_purged(world: OpenStore) -> None:
    await keep_days(world, 3)
    await fill(world, 40)
    world.now.ahead += 2 * DAY
    assert await purge(world).run(TENANT) == PurgeResult(0, None)
    world.now.ahead += 20 * DAY
    await keep_days(world, 0)
    assert await purge(world).run(TENANT) == PurgeResult(0, None)
    assert await seqs(world) == list(range(40))
    # A log without an entry has no old ones.
    await keep_days(world, 1, OTHER)
    assert await purge(world).run(OTHER) == PurgeResult(0, None)


async def test_an_idle_log_does_not_purge_its_own_purges_endlessly(world: OpenStore) -> None:
    await aged(world, 5, 0)
    for _ in range(3):
        await purge(world).run(TENANT)
        assert await seqs(world) == [5]
        world.now.ahead += 2 * DAY
    await valid(world)


async def each_is_found(world: OpenStore) -> None:
    """By the index, each event that is left is found by its members, and no other."""
    shown = await read.events(world.store, TENANT, EventFilters(), 1000)
    assert shown.events
    for name in ("agent_role", "session_id", "user_id"):
        for value in {each[name] for each in shown.events if each[name]}:
            found = await read.events(world.store, TENANT, EventFilters(**{name: value}), 1000)
            meant = [each["seq"] for each in shown.events if each[name] == value]
            assert [each["seq"] for each in found.events] == meant


async def test_a_second_purge_continues_after_the_first_at_any_cut(world: OpenStore) -> None:
    await aged(world, 33, 20)
    assert (await purge(world).run(TENANT)).removed == 33
    world.now.ahead += 2 * DAY
    await fill(world, 7, seed=3)
    # The entry of the first purge is one of those that go.
    outcome = await purge(world).run(TENANT)
    assert outcome.removed == 21
    assert outcome.anchor is not None
    assert (outcome.anchor.purged.size, outcome.anchor.purged.count) == (54, 21)
    answer = await valid(world)
    assert (answer["first_seq"], answer["last_seq"]) == (54, 61)
    assert await seqs(world) == list(range(54, 62))
    await each_is_found(world)


@pytest.mark.deep(stands_in="test_a_second_purge_continues_after_the_first_at_any_cut")
@pytest.mark.parametrize("seed", range(4))
async def test_purges_at_any_cut_leave_a_valid_log(either_url: str, seed: int) -> None:
    chance = random.Random(seed)
    async with opened(either_url) as world:
        await keep_days(world, 1)
        old, answer = 0, await valid(world)
        for round_ in range(5):
            young = chance.choice([1, 2, 31, 32, 33, 64, 77])
            await fill(world, young, seed=seed * 10 + round_)
            outcome = await purge(world).run(TENANT)
            answer = await valid(world)
            assert answer["last_seq"] == (await seqs(world))[-1]
            if outcome.anchor is not None:
                assert answer["first_seq"] == outcome.anchor.purged.size >= old
                old = outcome.anchor.purged.size
            await Log.open(world.store)
            world.now.ahead += chance.choice([DAY // 2, DAY + 1, 3 * DAY])
        assert old > 0
        await each_is_found(world)
