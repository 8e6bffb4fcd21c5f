"""A purge that dies at any point, or runs beside others, leaves a valid log and is completed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control_api.log import purge as purge_module
from control_api.log import read
from control_api.log import verify as verify_module
from control_api.log.purge import PurgeResult
from control_api.log.purge_plan import prove
from control_api.log.scan import scan
from control_api.log.search import EventFilters
from control_api.store.queries import purges
from policies.ground.errors import NotFound
from tests.control_api.log.purging import DAY, aged, keep_days, purge, seqs, valid
from tests.support.open_store import TENANT, OpenStore, decision, opened

pytestmark = pytest.mark.usefixtures("small_steps")
CRASHES = ("prove", "commit", "cover", "covered", "remove", "removed")


class Died(Exception):
    """Simulates the death of the process."""


@pytest.mark.deep(stands_in="test_an_event_below_the_cut_is_hidden_at_once")
@pytest.mark.parametrize("point", CRASHES)
async def test_a_crash_at_any_point_leaves_a_valid_log_and_the_next_purge_finishes(
    either_url: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async with opened(either_url) as world:
        await aged(world, 90, 40)
        with monkeypatch.context() as patch:
            _die_at(patch, point)
            with pytest.raises(Died):
                await purge(world).run(TENANT)
        answer = await valid(world)
        committed = point not in {"prove", "commit"}
        assert (answer["anchor"] is not None) == committed
        assert answer["total"] == (41 if committed else 130)
        shown = await read.events(world.store, TENANT, EventFilters(), 1000)
        assert (min(each["seq"] for each in shown.events) >= 90) == committed
    async with opened(either_url) as world:  # the service starts on it
        world.now.ahead += 2 * DAY
        await purge(world).run(TENANT)
        assert (await seqs(world)) == list(range(90, 131))
        assert (await valid(world))["anchor"]["purged_count"] == 90


def _die_at(patch: pytest.MonkeyPatch, point: str) -> None:
    """Dies before the step `prove`, `commit`, `cover` or `remove`, after the note is stored, or
    after some rows are removed."""
    steps = {"commit": "add", "cover": "cover", "covered": "plan", "remove": "remove"}

    def dead(*_: Any) -> Any:
        raise Died

    if point == "prove":
        patch.setattr(purge_module, "prove", dead)
    elif point in steps:
        patch.setattr(purges, steps[point], dead)
    else:
        real, left = purges.remove, [3]

        def some(*asked: Any) -> None:
            if not left[0]:
                raise Died
            left[0] -= 1
            real(*asked)

        patch.setattr(purges, "remove", some)


async def test_an_event_below_the_cut_is_hidden_at_once(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows still exist, but no reader sees half a purge."""
    await aged(world, 60, 30)
    shown = await read.events(world.store, TENANT, EventFilters(), 1000)
    old = [each["event_id"] for each in shown.events if each["seq"] < 60]
    for point in CRASHES:
        with monkeypatch.context() as patch:
            _die_at(patch, point)
            with pytest.raises(Died):
                await purge(world).run(TENANT)
        answer = await valid(world)
        assert answer["total"] == (90 if point in {"prove", "commit"} else 31), point
    assert len(await seqs(world)) > 31
    for filters in (
        EventFilters(),
        EventFilters(decision="ALLOW"),
        EventFilters(since=0),
        EventFilters(user_id="u-1"),
    ):
        found = await read.events(world.store, TENANT, filters, 1000)
        assert found.events
        assert {each["seq"] < 60 for each in found.events} == {False}
    for eid in old[-3:]:
        with pytest.raises(NotFound):
            await read.event(world.store, TENANT, eid)
    # The next run completes it.
    assert (await purge(world).run(TENANT)).removed > 0
    assert await seqs(world) == list(range(60, 91))
    assert (await valid(world))["anchor"]["purged_count"] == 60


@pytest.mark.deep(stands_in="test_entries_purged_by_another_replica_meanwhile_are_purged_once")
async def test_two_concurrent_replicas_make_one_purge(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        await aged(world, 120, 40)
        other.now.ahead = world.now.ahead
        outcomes = await asyncio.gather(
            *(purge(each).run(TENANT) for each in (world, other, world, other))
        )
        assert sum(outcome.removed for outcome in outcomes) == 120
        assert await seqs(world) == list(range(120, 161))
        await valid(world)


async def test_a_longer_retention_set_meanwhile_stops_the_purge(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await aged(world, 40, 10)
    real = prove

    async def slow(*asked: Any) -> Any:
        due = await real(*asked)
        await keep_days(world, 365)
        return due

    monkeypatch.setattr(purge_module, "prove", slow)
    assert await purge(world).run(TENANT) == PurgeResult(0, None)
    assert await seqs(world) == list(range(50))


@pytest.mark.parametrize("point", ["prove", "plan"])
async def test_entries_purged_by_another_replica_meanwhile_are_purged_once(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Between its proof and its commit, or between two steps of its removal."""
    await aged(world, 12, 4)
    module = purge_module if point == "prove" else purges
    real, others = getattr(module, point), []

    async def slow(*asked: Any) -> Any:
        found = await real(*asked)
        monkeypatch.setattr(module, point, real)
        others.append(await purge(world).run(TENANT))
        return found

    monkeypatch.setattr(module, point, slow)
    own, [other] = await purge(world).run(TENANT), others
    assert (own.removed, other.removed) == (0, 12)
    # With one `purge` entry at the end.
    assert await seqs(world) == list(range(12, 17))
    await valid(world)


async def test_a_verification_that_meets_a_purge_begins_again(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds a part of the rows, at its first try and then."""
    await aged(world, 40, 4)
    real = scan

    async def slow(*asked: Any) -> Any:
        monkeypatch.setattr(verify_module, "scan", real)
        with monkeypatch.context() as patch:
            _die_at(patch, "removed")
            with pytest.raises(Died):
                await purge(world).run(TENANT)
        return await real(*asked)

    monkeypatch.setattr(verify_module, "scan", slow)
    assert (await valid(world))["first_seq"] == 40


@pytest.mark.deep(stands_in="test_a_verification_that_meets_a_purge_begins_again")
async def test_verification_succeeds_while_rows_are_removed_and_added(world: OpenStore) -> None:
    await aged(world, 400, 200)
    going = True

    async def write() -> None:
        while going:
            await world.log.append(TENANT, decision())

    writers = [asyncio.ensure_future(write()) for _ in range(4)]
    work = asyncio.ensure_future(purge(world).run(TENANT))
    walks = 0
    try:
        while not work.done():
            await valid(world)
            walks += 1
    finally:
        going = False
        await asyncio.gather(*writers)
    assert (await work).removed == 400
    assert walks > 1
    answer = await valid(world)
    assert answer["first_seq"] == 400
    assert answer["total"] == (await seqs(world))[-1] + 1 - 400
