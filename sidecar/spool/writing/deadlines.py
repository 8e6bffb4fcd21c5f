"""Mode `strict`: fails a future with `SpoolSlow` if it is not done in time. One timer for all."""

import asyncio
from collections import deque
from collections.abc import Callable

from sidecar.spool.errors import SpoolSlow


class Deadlines:
    """All futures get the same `seconds`, so they fall due in the order in which they came."""

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._watched: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, future: asyncio.Future[None]) -> None:
        self._watched.append((self._monotonic() + self._seconds, future))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._expire_due)

    def _expire_due(self) -> None:
        now = self._monotonic()
        watched = self._watched
        while watched and (watched[0][1].done() or watched[0][0] <= now):
            _, future = watched.popleft()
            if not future.done():
                # The record stays on its way to the disk. If it gets there it ships, and the log
                # then holds a decision that was answered with 503.
                future.set_exception(SpoolSlow())
                # Marks it as retrieved: asyncio would report it if the client hung up.
                future.exception()
        # One timer for the next future due, not one for each: most are done before they are due.
        self._timer = (
            self._loop.call_later(watched[0][0] - now, self._expire_due) if watched else None
        )
