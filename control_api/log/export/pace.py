"""Lets an export run at full speed on an idle service, and give way on a busy one. Knows only the
event loop: how long it takes to come round again."""

import asyncio
from collections.abc import Callable

IDLE = 0.0005
"""A turn of the event loop that takes no longer, in seconds, finds the service idle."""
SHARE = 20
"""A busy service gets this many times the time that a page took."""
LONGEST = 0.5
"""The longest rest, in seconds: an export also advances on a service that is always busy."""


class Pace:
    """The pace of one export."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic

    async def rest(self, worked: float) -> None:
        """Rests after a page that took `worked` seconds, if the service has other work."""
        before = self._monotonic()
        # Two turns: the first may find the loop just before its next look for events.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self._monotonic() - before > IDLE:
            await asyncio.sleep(min(worked * SHARE, LONGEST))
