"""Limits how often a key may call: a token bucket per key, in this process. Knows no route. The
sessions of a key use its bucket; a person of OpenID Connect has one of their own.

It wraps the authenticator if a limit is configured, and is absent otherwise.
"""

from itertools import islice
from math import ceil
from typing import Protocol

from control_api.auth.principal import Caller, Superadmin
from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
from policies.ground.clock import Clock
from policies.ground.errors import TooMany

BURST_SECONDS = 1.0
"""A bucket's capacity is the number of requests that its key may make in this time."""
MAX_BUCKETS = 65_536
# Seconds: rounding in the sums below must not refuse a client that is exactly on time.
_ROUNDING = 1e-6
# A sidecar delivers the records of many agents, and its policy set carries revocations. The
# superadmin must get in even when everyone else is over the limit.
UNLIMITED = frozenset({"sidecar", "superadmin"})
"""Scopes without a limit."""


class NextAuthenticator(Protocol):
    """The authenticator that the rate limit wraps; see `authenticate`."""

    async def __call__(self, presented: str | None) -> Caller | Superadmin: ...


class OverLimit(TooMany):
    """the key is over its rate limit"""

    def __init__(self, rate: int, seconds: float) -> None:
        self.headers = {"Retry-After": str(max(1, ceil(seconds)))}
        super().__init__(f"the key is over its rate limit of {rate} requests per second")


class RateLimit:
    """An authenticator that admits `rate` requests per second and key, and as many at once."""

    def __init__(
        self, authenticate: NextAuthenticator, rate: int, clock: Clock, instruments: Instruments
    ) -> None:
        self._authenticate = authenticate
        self._rate = rate
        self._now = clock.monotonic
        self._refused = instruments.http.refusals.labels(RefusalReason.rate)
        # A bucket is one number, the time at which it is full again. A missing bucket counts as
        # full, so memory is bounded by the keys that called within the last second.
        self._full_at: dict[str, float] = {}

    async def __call__(self, presented: str | None) -> Caller | Superadmin:
        """The caller. Raises `OverLimit` if its key's bucket is empty."""
        caller = await self._authenticate(presented)
        self.admit(caller)
        return caller

    def admit(self, caller: Caller | Superadmin) -> None:
        """Count a request of a caller that has proved who it is. Raises `OverLimit`."""
        if caller.scope not in UNLIMITED:
            self._take(caller.by)

    @property
    def buckets(self) -> int:
        """The number of buckets in memory."""
        return len(self._full_at)

    def _take(self, key_id: str) -> None:
        now = self._now()
        # Popped and inserted again, so the dictionary stays in order of the last request.
        full_at = max(self._full_at.pop(key_id, now), now)
        # A refused request takes no token, so a client that keeps knocking gets in once it is due.
        wait = full_at + 1 / self._rate - now - BURST_SECONDS
        self._full_at[key_id] = full_at if wait > _ROUNDING else full_at + 1 / self._rate
        self._drop_buckets(now)
        if wait > _ROUNDING:
            self._refused.inc()
            raise OverLimit(self._rate, wait)

    def _drop_buckets(self, now: float) -> None:
        """Of the two least recently used buckets, drop those that are full or over the maximum."""
        # Two, because a request adds at most one: old buckets get fewer without a full sweep.
        for key_id in tuple(islice(self._full_at, 2)):
            if self._full_at[key_id] <= now or len(self._full_at) > MAX_BUCKETS:
                del self._full_at[key_id]
