"""Keeps searches from slowing decisions: they run on the same event loop, and a search may judge
thousands of candidates.

A search works in slices of a fraction of a millisecond. While decisions are made, all searches
together get a small share of the time; while none are, a search only yields between its slices.
Knows nothing of what is searched.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from policies.ground.errors import Unavailable

SHARE = 0.03
"""The share of the time that searches get while decisions are made, so that these keep nine tenths
with room to spare."""
SLICE_SECONDS = 0.0002
BURST_SECONDS = 0.2
"""The seconds of unused time that are saved up, so that a small search after a pause need not
wait."""
FIXED_SECONDS = 0.0005
"""The seconds that a search costs besides its slices: reading the request, writing the answer."""
BUSY_SECONDS = 0.1
"""The seconds after a decision during which the sidecar still counts as deciding."""
MAX_SEARCHES = 16


class SearchPace:
    """Shared by all searches. `decided` counts the decisions so far; `monotonic` is the clock."""

    def __init__(self, monotonic: Callable[[], float], decided: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._decided = decided
        self._count = decided()
        self._busy_until = 0.0
        self._paid_until = 0.0
        self._under_way = 0

    @contextmanager
    def search(self) -> Iterator["PacedSearch"]:
        """Begin one search, which ends with the block. Raises `Unavailable` if too many are under
        way."""
        if self._under_way >= MAX_SEARCHES:
            raise Unavailable(f"{MAX_SEARCHES} searches are under way; try again in a second")
        self._under_way += 1
        try:
            yield PacedSearch(self, self._monotonic)
        finally:
            self._under_way -= 1

    async def pay(self, used: float) -> None:
        """Wait until other work has had its share of time for `used` seconds of searching."""
        # Decisions that wait in the loop are made now, and counted below.
        await asyncio.sleep(0)
        now = self._monotonic()
        count = self._decided()
        if count != self._count:
            self._count, self._busy_until = count, now + BUSY_SECONDS
        self._paid_until = max(self._paid_until, now - BURST_SECONDS) + used / SHARE
        if now >= self._busy_until:
            self._paid_until = min(self._paid_until, now)
        elif self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)


class PacedSearch:
    """The slices of one search. Its time counts from when this object is made."""

    def __init__(self, pace: SearchPace, monotonic: Callable[[], float]) -> None:
        self._pace = pace
        self._monotonic = monotonic
        self._resumed = monotonic() - FIXED_SECONDS

    async def rest(self, *, last: bool = False) -> None:
        """Call after each small step, and with `last` at the end: returns at once until a slice is
        used up."""
        used = self._monotonic() - self._resumed
        if last or used >= SLICE_SECONDS:
            await self._pace.pay(used)
            self._resumed = self._monotonic()
