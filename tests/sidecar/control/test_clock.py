"""The control API's time, on a host whose clock is wrong or is set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from policies.ground.canonical import micros
from policies.ground.clock import Clock
from sidecar.control.clock import ControlClock
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import FakeClock, running_sidecar
from tests.support.waiting import until_async

HOUR = 3_600_000_000
NOON = 1_800_000_000_000_000


class Host:
    """A host's clocks."""

    def __init__(self, wall: int = NOON) -> None:
        self.wall = wall
        self.seconds = 100.0
        self.clock = Clock(lambda: self.wall, lambda: self.seconds)

    def passes(self, seconds: float) -> None:
        self.wall += int(seconds * 1e6)
        self.seconds += seconds


def test_the_clock_shows_the_host_s_time_until_the_control_api_answers() -> None:
    host = Host()
    time = ControlClock(host.clock)
    host.passes(2.5)
    assert time.now() == NOON + 2_500_000


@pytest.mark.parametrize("off", [-HOUR, -2_000_000, 2_000_000, HOUR])
def test_the_clock_shows_the_control_api_s_time_after_the_first_answer(off: int) -> None:
    host = Host(NOON + off)
    time = ControlClock(host.clock)
    assert time.now() == NOON + off
    host.passes(1)
    time.learn(NOON + 1_000_000, 101.0, 101.0)
    host.passes(3)
    assert time.now() == NOON + 4_000_000


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_change_of_the_host_s_clock_changes_nothing(step: int) -> None:
    host = Host()
    time = ControlClock(host.clock)
    time.learn(NOON, 100.0, 100.0)
    host.wall += step
    host.passes(5)
    assert time.now() == NOON + 5_000_000


@pytest.mark.parametrize("step", [-HOUR, -1_500_000, 1_500_000, HOUR])
def test_a_change_of_the_control_api_s_clock_is_followed_after_two_equal_answers(step: int) -> None:
    host = Host()
    time = ControlClock(host.clock)
    time.learn(NOON, 100.0, 100.001)
    host.passes(5)
    time.learn(NOON + 5_000_000 + step, 105.0, 105.01)
    assert abs(time.now() - (NOON + 5_000_000)) < 10_000
    host.passes(5)
    time.learn(NOON + 10_000_000 + step, 110.0, 110.01)
    assert abs(time.now() - (NOON + 10_000_000 + step)) < 10_000


@pytest.mark.parametrize("off", [-HOUR, -2_000_000, 2_000_000, HOUR])
def test_two_replicas_with_different_times_do_not_alternate_the_clock(off: int) -> None:
    host = Host()
    time = ControlClock(host.clock)
    time.learn(NOON, 100.0, 100.001)
    for turn in range(1, 20):
        host.passes(5)
        at = 100.0 + 5 * turn
        time.learn(NOON + 5_000_000 * turn + off * (turn % 2), at, at + 0.001)
        assert abs(time.now() - (NOON + 5_000_000 * turn)) < 10_000


def test_two_exchanges_that_differ_from_each_other_confirm_nothing() -> None:
    host = Host()
    time = ControlClock(host.clock)
    time.learn(NOON, 100.0, 100.001)
    for turn, off in enumerate((HOUR, -HOUR, 2 * HOUR), 1):
        host.passes(5)
        at = 100.0 + 5 * turn
        time.learn(NOON + 5_000_000 * turn + off, at, at + 0.001)
        assert abs(time.now() - (NOON + 5_000_000 * turn)) < 10_000


def test_a_quick_exchange_corrects_a_slow_one_at_once() -> None:
    """It contradicts nothing: the slow one said no more than about when."""
    host = Host()
    time = ControlClock(host.clock)
    time.learn(NOON, 100.0, 104.0)
    host.passes(5)
    time.learn(NOON + 4_500_000, 105.0, 105.001)
    assert abs(time.now() - (NOON + 4_500_000)) < 10_000


def test_time_never_turns_back_for_a_small_correction() -> None:
    host = Host()
    time = ControlClock(host.clock)
    time.learn(NOON, 100.0, 100.2)
    host.passes(1)
    before = time.now()
    time.learn(NOON + 500_000, 101.0, 101.001)
    assert time.now() == before
    host.passes(1)
    assert before < time.now() < NOON + 1_600_000


def test_a_slow_exchange_does_not_replace_a_quick_one() -> None:
    host = Host()
    time = ControlClock(host.clock)
    time.learn(NOON, 100.0, 100.002)
    host.passes(10)
    exact = time.now()
    time.learn(NOON + 12_000_000, 110.0, 115.0)  # anywhere between
    assert time.now() == exact
    # Clocks drift: in the end a slow one counts again.
    host.passes(100_000)
    time.learn(NOON + 100_010_000_000 + 400_000, 100_110.0, 100_110.9)
    assert time.now() != exact + 100_000_000_000


async def test_records_bear_the_control_api_s_time(tmp_path: Path) -> None:
    clock = FakeClock()
    clock.wall_ahead = 3600
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, clock=clock) as running:
            reporter = running.parts.reporter
            await reporter.report()
            await running.evaluate()
            [record] = await running.records()
            assert abs(micros(record["src"]["t"]) - control.now()) < 2_000_000
            reporting = asyncio.create_task(reporter.run())
            control.create_tenant()
            control.publish({"role/another": b"[]"})
            await until_async(
                "the new revision is reported",
                lambda: control.reports[-1]["revision"] == control.revision,
            )
            report = control.reports[-1]
            assert (report["sidecar_id"], report["epoch"]) == ("sidecar-1", control.epoch)
            assert report["refusing"] is None
            assert report["spool_depth"] == 1
            reporting.cancel()
