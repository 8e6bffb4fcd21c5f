"""How often a key may ask: a token bucket per key, in this process. Stands before the door's
authentication where a limit is set, and nowhere where none is. Knows no route.

A bucket is one number, the time at which it will be full again: what is full is forgotten, and what
is forgotten is full, so the memory is bounded by the keys that asked within the last second.
"""

from itertools import islice
from math import ceil
from typing import Protocol

from control_api.auth.principal import Caller, Superadmin
from control_api.metrics.metrics import Instruments, RefusalReason
from policies.ground.clock import Clock
from policies.ground.errors import TooMany

BURST_SECONDS = 1.0
"""How much a bucket holds: what its key may ask in so long."""
KEEP = 65_536
_ROUNDING = 1e-6
UNLIMITED = frozenset({"sidecar", "superadmin"})
"""A sidecar carries the records of many agents, which must arrive, and its policy set is what
revocation reaches it by; the superadmin must get in when all others crowd."""


class NextAuthenticator(Protocol):
    """See `authenticate`."""

    async def __call__(self, presented: str | None) -> Caller | Superadmin: ...


class OverLimit(TooMany):
    """over the rate limit of the key"""

    def __init__(self, rate: int, seconds: float) -> None:
        self.headers = {"Retry-After": str(max(1, ceil(seconds)))}
        super().__init__(f"over the rate limit of the key: {rate} requests a second")


class RateLimit:
    """An authentication that lets a key in `rate` times a second, and as often at once."""

    def __init__(
        self, authenticate: NextAuthenticator, rate: int, clock: Clock, instruments: Instruments
    ) -> None:
        self._authenticate = authenticate
        self._rate = rate
        self._now = clock.monotonic
        self._refused = instruments.refusals.labels(RefusalReason.rate)
        self._full_at: dict[str, float] = {}

    async def __call__(self, presented: str | None) -> Caller | Superadmin:
        """`OverLimit` where the key's bucket is empty; a refused request takes nothing from it."""
        caller = await self._authenticate(presented)
        if caller.scope not in UNLIMITED:
            self._take(caller.by)
        return caller

    def _take(self, key_id: str) -> None:
        now = self._now()
        # Taken out and put back in: the dictionary stays in order of the last request.
        full_at = max(self._full_at.pop(key_id, now), now)
        wait = full_at + 1 / self._rate - now - BURST_SECONDS
        self._full_at[key_id] = full_at if wait > _ROUNDING else full_at + 1 / self._rate
        self._make_room(now)
        if wait > _ROUNDING:
            self._refused.inc()
            raise OverLimit(self._rate, wait)

    def _make_room(self, now: float) -> None:
        """Of those who asked longest ago, forget whose bucket is full, or who is one too many."""
        for key_id in tuple(islice(self._full_at, 2)):
            if self._full_at[key_id] <= now or len(self._full_at) > KEEP:
                del self._full_at[key_id]
