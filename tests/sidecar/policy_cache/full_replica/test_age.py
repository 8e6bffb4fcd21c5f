"""A full replica: when it polls, and how old its set is."""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.policy_cache.full_replica.polling_replica import polling_replica
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import FakeClock


async def test_an_answer_without_changes_keeps_the_set_fresh(tmp_path: Path) -> None:
    async with (
        fake_control_api() as control,
        polling_replica(tmp_path, control, limit=2.0) as replica,
    ):
        control.create_tenant()
        await replica.sync()
        polls = replica.follower.polls
        replica.clock.ahead += 1.9
        await replica.follower.step()
        assert replica.follower.polls == polls + 1
        assert replica.freshness.age() < 1.5
        replica.clock.ahead += 2.1
        assert replica.stale()


async def test_a_control_api_that_answers_at_once_is_not_polled_in_a_tight_loop(
    tmp_path: Path,
) -> None:
    async with (
        fake_control_api() as control,
        polling_replica(tmp_path, control, limit=2.0) as replica,
    ):
        control.create_tenant()
        await replica.sync()
        control.answers_at_once = True
        running = asyncio.create_task(replica.follower.run())
        await asyncio.sleep(1.2)
        running.cancel()
        assert len(control.polls) < 6
        assert not replica.stale()


async def test_the_age_is_counted_from_the_sending_of_the_poll(tmp_path: Path) -> None:
    async with (
        fake_control_api() as control,
        polling_replica(tmp_path, control, limit=2.0) as replica,
    ):
        control.create_tenant()
        await replica.sync()
        await replica.follower.step()  # which waits half a second for news
        assert replica.freshness.age() > 0.4


@pytest.mark.parametrize(
    ("moved", "stale"), [(0.0, False), (25.0, False), (31.0, True), (-4.0, False), (-6.0, True)]
)
async def test_the_age_after_a_restart_is_that_of_the_wall_clock(
    tmp_path: Path, moved: float, stale: bool
) -> None:
    async with (
        fake_control_api() as control,
        polling_replica(tmp_path, control, limit=30.0) as replica,
    ):
        control.create_tenant()
        await replica.sync()
    clock = FakeClock()
    clock.wall_ahead = moved
    async with polling_replica(tmp_path, control, clock=clock, limit=30.0) as replica:
        assert replica.stale() is stale
        assert replica.policy_set.revision == 5
        if not stale:
            assert replica.freshness.age() == pytest.approx(max(moved, 0), abs=2)


async def test_a_step_of_the_wall_clock_does_not_change_the_age(tmp_path: Path) -> None:
    async with (
        fake_control_api() as control,
        polling_replica(tmp_path, control, limit=30.0) as replica,
    ):
        control.create_tenant()
        await replica.sync()
        replica.clock.wall_ahead = 3600
        assert not replica.stale()
        replica.clock.wall_ahead = -3600
        assert not replica.stale()
