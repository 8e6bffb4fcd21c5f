"""Moves the clock of a running event loop ahead.

A test gives a limit of a minute, and ends it when it likes: a busy machine can't end it earlier,
and the test need not wait for it. Real time goes on, so connections and the waits of `waiting.py`
work as ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import Any

import uvloop

from policies.ground.clock import Clock
from tests.support import waiting


class LoopClock:
    """The clock of the running loop; `clock` is for code that takes one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._time, self._call_later = self._loop.time, self._loop.call_later
        self._ahead = 0.0
        self._timers: set[_Timer] = set()
        self.clock = Clock(self._now, self.monotonic)

    def monotonic(self) -> float:
        return self._time() + self._ahead

    def _now(self) -> int:
        return time.time_ns() // 1000 + int(self._ahead * 1e6)

    async def skip(self, seconds: float) -> None:
        """Skip these seconds, and return once the timers that became due have run: those that all
        tasks that can run by now have set."""
        await waiting.turns()
        self._ahead += seconds
        for timer in sorted(self._timers, key=_Timer.when):
            if timer.when() <= self.monotonic():
                timer.hurry(self._loop)
        await waiting.turns()

    def call_later(
        self, delay: float, work: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Timer:
        return self.call_at(self.monotonic() + delay, work, *args, context=context)

    def call_at(
        self, when: float, work: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Timer:
        timer = _Timer(when, partial(work, *args), self._timers, context)
        left = max(0.0, when - self.monotonic())
        timer.scheduled = self._call_later(left, timer.fire, context=context)
        return timer


class _Timer:
    """Stands in for the handle of a timer."""

    def __init__(
        self,
        when: float,
        work: Callable[[], Any],
        timers: set[_Timer],
        context: Context | None,
    ) -> None:
        self._when, self._work, self._timers, self._context = when, work, timers, context
        self.scheduled: asyncio.Handle | None = None
        timers.add(self)

    def when(self) -> float:
        return self._when

    def cancelled(self) -> bool:
        return self.scheduled is not None and self.scheduled.cancelled()

    def cancel(self) -> None:
        self._timers.discard(self)
        if self.scheduled is not None:
            self.scheduled.cancel()

    def hurry(self, loop: asyncio.AbstractEventLoop) -> None:
        self.cancel()
        self.scheduled = loop.call_soon(self.fire, context=self._context)

    def fire(self) -> None:
        self._timers.discard(self)
        self._work()


@contextmanager
def moving_clock() -> Iterator[LoopClock]:
    """Replace the running loop's clock. On uvloop, timers that were set before don't move."""
    loop, made = asyncio.get_running_loop(), LoopClock()
    replaced: dict[str, Any] = {"time": made.monotonic}
    if isinstance(loop, uvloop.Loop):
        # asyncio's loop compares its timers with `time`, but uvloop's are in libuv.
        replaced |= {"call_later": made.call_later, "call_at": made.call_at}
    for name, moved in replaced.items():
        setattr(loop, name, moved)
    try:
        yield made
    finally:
        for name in replaced:
            delattr(loop, name)
