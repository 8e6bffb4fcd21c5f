"""Shows how far a run has come: a line every ten seconds, and the test that it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_SECONDS = 10.0
SILENCE_SECONDS = 30.0
"""After so long without a finished test, the slowest running one is named."""
SLOWEST = 10


class Progress:
    """Counts the finished tests, by what they cost."""

    def __init__(self, write: Callable[[str], None], tests: int, cost: float) -> None:
        self._write, self._tests, self._cost = write, tests, cost
        self._begun = self._shown = self._finished = time.monotonic()
        self._done, self._spent, self._failed = 0, 0.0, 0
        self._seconds: dict[str, float] = {}

    def finished(self, nodeid: str, seconds: float, cost: float, *, failed: bool) -> None:
        """A test is finished, after so many seconds. `cost` is what it counts for."""
        self._seconds[nodeid] = seconds
        self._done += 1
        self._spent += cost
        self._failed += failed
        self._finished = time.monotonic()

    def turn(self, running: dict[str, float]) -> None:
        """Show a line if it is time. `running` holds each running test's seconds."""
        now = time.monotonic()
        if now - self._shown < EVERY_SECONDS:
            return
        self._shown = now
        line = self._head(now)
        if running and now - self._finished >= SILENCE_SECONDS:
            slowest = max(running, key=lambda nodeid: running[nodeid])
            line += f"; running for {running[slowest]:.0f} s: {slowest}"
        self._write(line)

    def slowest(self) -> list[str]:
        """The tests that took longest, a line each."""
        ranked = sorted(self._seconds.items(), key=lambda each: -each[1])[:SLOWEST]
        return [f"{seconds:7.2f} s  {nodeid}" for nodeid, seconds in ranked]

    def _head(self, now: float) -> str:
        share = self._spent / self._cost if self._cost else self._done / max(1, self._tests)
        minutes, seconds = divmod(round(now - self._begun), 60)
        counts = f"{self._done:,} of {self._tests:,} tests, {self._failed} failed"
        return f"{min(share, 1):4.0%}  {minutes}:{seconds:02}  {counts}"
