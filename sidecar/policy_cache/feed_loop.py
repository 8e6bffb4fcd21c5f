"""What the loops that keep a replica current share: their state, their pauses, and one log line
per outage. Knows nothing of transports."""

import logging
import random
import sqlite3

from sidecar.platform.state_logger import StateLogger
from sidecar.policy_cache.feed import FeedRejected

MAX_PAUSE = 2.0
FIRST_PAUSE = 0.05


class FeedLoop:
    """`refused` says why the last answer was not trusted, None if it was or there was none. `polls`
    counts requests, `failures` those without a usable answer."""

    def __init__(self, log: logging.Logger, what: str, max_pause: float) -> None:
        self.refused: str | None = None
        self.polls = 0
        self.failures = 0
        self._outage = StateLogger(log, what)
        self._max_pause = min(MAX_PAUSE, max_pause)
        self._failed_in_a_row = 0

    @property
    def problem(self) -> str | None:
        """Why the last attempt failed; None if it did not."""
        return self._outage.problem

    def _pause_after(self, error: Exception) -> float:
        """Note a failed attempt. Returns the seconds to wait before the next, with jitter: a fleet
        that lost its control API or its Redis must not come back in step."""
        if isinstance(error, sqlite3.Error):
            self._outage.failing(f"the policy cache can't be written: {error}")
        else:
            self._outage.failing(str(error))
        if isinstance(error, FeedRejected):
            self.refused = str(error)
        self.failures += 1
        ceiling = min(self._max_pause, FIRST_PAUSE * (1 << min(self._failed_in_a_row, 10)))
        self._failed_in_a_row += 1
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing
