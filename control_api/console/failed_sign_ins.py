"""Slows who fails to sign in again and again, by address. Knows no key and no session.

What is slowed is the answer to a failure alone: a valid key is never refused nor delayed, so that
people behind one proxy, who share an address, can't be locked out by one of them.
"""

import asyncio
from collections.abc import Awaitable, Callable

from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
from policies.ground.errors import TooMany

FREE = 3
"""Failures of an address that are answered at once."""
FIRST_SECONDS = 0.25
MOST_SECONDS = 4.0
FORGET_SECONDS = 600.0
"""How long after its last failure an address is slowed."""
MAX_ADDRESSES = 4096
MAX_WAITING = 64
"""Failures that wait at a time in this process; any other is refused at once."""


class FailedSignIns:
    """Counts failures in this process. `monotonic` is in seconds."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        instruments: Instruments,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = monotonic
        self._sleep = sleep
        self._refused = instruments.http.refusals.labels(RefusalReason.rate)
        self._failures: dict[str, tuple[int, float]] = {}
        self._waiting = 0

    async def wait(self, address: str) -> None:
        """Note a failure, and wait the longer the more there were. Raises `TooMany` if too many
        wait already."""
        now = self._now()
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        self._failures[address] = (count, now)
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        if count <= FREE:
            return
        if self._waiting >= MAX_WAITING:
            self._refused.inc()
            raise TooMany("too many failed attempts to sign in: try again in a few seconds")
        self._waiting += 1
        try:
            await self._sleep(min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(count - FREE - 1, 10)))
        finally:
            self._waiting -= 1
