"""Lets an export run at full speed on an idle service, and give way on a busy one. Knows only the
event loop: how much of the time it works."""

from asyncio import sleep
from collections.abc import Callable
from time import thread_time

BUSY = 0.2
"""The share of the time from which on an event loop is busy. An export alone takes a tenth of it,
since its pages are read and compressed in threads; requests at a decision's rate, four tenths."""
SHARE = 20
"""A busy service gets this many times the time that a page took."""
LONGEST = 1.0
"""The longest rest, in seconds: an export also advances on a service that is always busy."""


class Pace:
    """The pace of one export. Used on the thread of the event loop only."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at = self._begun = monotonic()
        self._used = thread_time()
        self._share = 0.0

    def begin(self) -> None:
        """A page begins."""
        self._begun = self._monotonic()

    async def rest(self) -> None:
        """Rests after a page, if the event loop had other work lately."""
        # Over whole pages and rests, not only now: requests come in waves, and between two of them,
        # while their records are written to the disk, a busy service looks idle.
        now, used = self._monotonic(), thread_time()
        share = (used - self._used) / max(now - self._at, 1e-6)
        self._share += (share - self._share) / 2
        self._at, self._used = now, used
        if self._share > BUSY:
            await sleep(min((now - self._begun) * SHARE, LONGEST))
