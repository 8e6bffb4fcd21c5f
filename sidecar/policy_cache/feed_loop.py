"""The common part of the loops that keep a replica current: their state, their pauses, and one log
line per outage. Does not read what an answer says."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable

from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.platform.backoff import Backoff
from sidecar.policy_cache.feed import FeedFailed, FeedForbidden, FeedPage, FeedRejected
from sidecar.policy_cache.replica import ReplicaState

MAX_WAIT = 10.0
"""The longest long poll, in seconds. The control API allows 25."""
MAX_PAUSE = 2.0
FIRST_PAUSE = 0.05


class FeedLoop:
    """`refused` says why the last answer was not trusted; it is None if the answer was trusted, or
    if there was none. `polls` counts requests, `failures` those without a usable answer."""

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        back: str,
        max_pause: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.refused: str | None = None
        self.polls = 0
        self.failures = 0
        self._outage = RepeatingOutageLogger(log, what, back, monotonic)
        self._max_pause = min(MAX_PAUSE, max_pause)
        self._backoff = Backoff(FIRST_PAUSE, self._max_pause)

    @property
    def problem(self) -> str | None:
        """The reason why the last attempt failed; None if it did not."""
        return self._outage.problem

    def _pause_after(self, error: Exception) -> float:
        """Note a failed attempt. Returns the seconds to wait before the next."""
        if isinstance(error, sqlite3.Error):
            self._outage.failing(f"the policy cache can't be written: {error}")
        else:
            self._outage.failing(str(error))
        if isinstance(error, FeedRejected):
            self.refused = str(error)
        self.failures += 1
        return self._backoff.next_pause()


class LongPollLoop(FeedLoop):
    """A loop that polls the control API."""

    def __init__(self, log: logging.Logger, what: str, back: str, state: ReplicaState) -> None:
        limit = state.freshness.limit
        # Who reads the line should know how long that may last.
        what = f"{what}; everything is denied once the set is older than {limit:g} s"
        super().__init__(log, what, back, limit / 4, state.clock.monotonic)
        self._state = state
        # Two polls and a failed one fit into the limit: one lost answer makes nothing stale.
        self._wait = min(MAX_WAIT, limit / 4)

    async def _attempt(self, step: Awaitable[None]) -> bool:
        """Await one poll. Returns whether it succeeded; after a failure, pauses first."""
        try:
            await step
        except (FeedFailed, FeedRejected, sqlite3.Error) as error:
            # None of these is fatal: the set in force stays in use until it is too old.
            if isinstance(error, FeedForbidden):
                # The control API refuses our key, which may have been revoked: deny from now on.
                self._state.freshness.expire(str(error))
            await asyncio.sleep(self._pause_after(error))
            return False
        self.refused = None
        self._backoff.reset()
        self._outage.recovered()
        return True

    async def _throttle(self, page: FeedPage, wait: float, sent: float) -> None:
        """Pause if the poll sent at `sent` was meant to wait for news but returned early without
        any. A control API that is shutting down answers at once; without a pause this would poll it
        in a tight loop."""
        if wait and not page.documents and self._state.clock.monotonic() - sent < wait / 4:
            await asyncio.sleep(self._max_pause)
