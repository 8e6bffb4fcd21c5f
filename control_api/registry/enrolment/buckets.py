"""Token buckets by name, in this process. Knows nothing of what they limit."""

from collections.abc import Hashable
from itertools import islice

MAX_BUCKETS = 65_536


class Buckets:
    """Each bucket admits `burst` at once, and `rate` per second after that."""

    def __init__(self, rate: float, burst: int) -> None:
        self._interval = 1 / rate
        self._burst_seconds = burst / rate
        # A bucket is one number, the time at which it is full again. A missing one is full.
        self._full_at: dict[Hashable, float] = {}

    def wait(self, name: Hashable, now: float) -> float:
        """Take one from the bucket, and return 0; or how many seconds until there is one."""
        # Popped and inserted again, so the dictionary stays in order of use.
        full_at = max(self._full_at.pop(name, now), now)
        wait = full_at + self._interval - now - self._burst_seconds
        admitted = wait <= 0
        self._full_at[name] = full_at + self._interval if admitted else full_at
        # Two, because a call adds at most one: full buckets go without a sweep.
        for each in tuple(islice(self._full_at, 2)):
            if self._full_at[each] <= now or len(self._full_at) > MAX_BUCKETS:
                del self._full_at[each]
        return 0.0 if admitted else wait

    def due(self, name: Hashable, now: float) -> float:
        """How many seconds until there is one in the bucket, 0 if there is. Takes none."""
        full_at = max(self._full_at.get(name, now), now)
        return max(0.0, full_at + self._interval - now - self._burst_seconds)

    def __len__(self) -> int:
        return len(self._full_at)
