"""A limit that a test moves ends at once, and no earlier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.support import waiting
from tests.support.loop_clock import moving_clock


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


NewLoop = Callable[[], asyncio.AbstractEventLoop]


def test_a_limit_expires_once_the_clock_is_moved_beyond_it(new_loop: NewLoop) -> None:
    async def test() -> None:
        with moving_clock() as clock:
            task = asyncio.ensure_future(asyncio.wait_for(waiting.never(), 600))
            await clock.skip(500)
            assert not task.done()
            await clock.skip(200)
            with pytest.raises(TimeoutError):
                await task

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())


def test_a_cancelled_timer_never_fires_and_others_fire_in_order(new_loop: NewLoop) -> None:
    async def test() -> list[int]:
        fired: list[int] = []
        with moving_clock() as clock:
            loop = asyncio.get_running_loop()
            loop.call_later(60, fired.append, 2)
            loop.call_later(30, fired.append, 1)
            loop.call_later(10, fired.append, 0).cancel()
            await clock.skip(100)
            await asyncio.sleep(0.001)  # real time goes on
        return fired

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(test()) == [1, 2]


def test_the_clock_given_to_others_moves_too(new_loop: NewLoop) -> None:
    async def test() -> None:
        with moving_clock() as clock:
            before = clock.clock.now(), clock.clock.monotonic()
            await clock.skip(600)
            assert clock.clock.now() - before[0] >= 600_000_000
            assert round(clock.clock.monotonic() - before[1], 3) >= 600
        assert asyncio.get_running_loop().time() < before[1] + 600

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())
