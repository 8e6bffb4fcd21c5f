"""The latest checkpoint of each log that one witness has not cosigned yet, and when to ask for it.

INVARIANT: a log that the witness refuses, or has never heard of, delays no other log: each has a
pause of its own. Requests are for others.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from control_api.store.queries.checkpoints import StoredCheckpoint

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until a witness that has not cosigned a log is asked for it again."""


@dataclass(slots=True)
class _Waiting:
    """`since` is when the log began to lack a cosignature, as `monotonic` counts it."""

    made: StoredCheckpoint
    since: float
    pause: float


class WitnessQueue:
    """The checkpoints that wait for one witness. `monotonic` counts seconds. Between `next` and
    `done` or `retry`, the log has no turn."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[str, _Waiting] = {}
        self._turns: list[tuple[float, int, str]] = []
        """When each log is due, the earliest first: a heap, since there may be thousands."""
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def put(self, tenant_id: str, made: StoredCheckpoint) -> None:
        """A log has a newer checkpoint. It keeps its turn, and the pause that it has."""
        waiting = self._waiting.get(tenant_id)
        if waiting is None:
            now = self._monotonic()
            self._waiting[tenant_id] = _Waiting(made, now, FIRST_PAUSE)
            self._due(tenant_id, now)
            self._changed.set()
        else:
            waiting.made = made

    async def next(self) -> tuple[str, StoredCheckpoint]:
        """The tenant whose turn it is, and the checkpoint of its log, once there is one."""
        while True:
            self._changed.clear()
            left = self._turns[0][0] - self._monotonic() if self._turns else None
            if left is not None and left <= 0:
                tenant_id = heapq.heappop(self._turns)[2]
                return tenant_id, self._waiting[tenant_id].made
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def done(self, tenant_id: str, made: StoredCheckpoint) -> None:
        """Nothing is to be asked for `made` any more."""
        waiting = self._waiting.pop(tenant_id)
        if waiting.made is not made:
            self.put(tenant_id, waiting.made)

    def retry(self, tenant_id: str) -> None:
        """Ask again after the log's pause, which doubles."""
        waiting = self._waiting[tenant_id]
        self._due(tenant_id, self._monotonic() + waiting.pause)
        waiting.pause = min(2 * waiting.pause, LONGEST_PAUSE)

    def waits(self) -> float:
        """Seconds since when the log that waits longest has no cosignature."""
        since = min((each.since for each in self._waiting.values()), default=None)
        return 0.0 if since is None else self._monotonic() - since

    def _due(self, tenant_id: str, when: float) -> None:
        heapq.heappush(self._turns, (when, next(self._order), tenant_id))
