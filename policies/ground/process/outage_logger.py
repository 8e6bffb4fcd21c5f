"""Logs when an outage begins and when it ends, instead of a line per attempt."""

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path

from policies.ground.errors import worded

PAUSE_SECONDS = 60.0
"""The shortest time between two lines that something fails. It holds for the state and not for the
text: a cause that alternates between two texts, or an outage that comes and goes, fills no log."""
REPEAT_SECONDS = 600.0
"""The time after which an outage is told again although its cause is the same."""


def loop_time() -> float:
    """Return the clock of the running event loop, in seconds."""
    return asyncio.get_running_loop().time()


class OutageLogger:
    """Logs an outage once, with its first cause. `what` names the part that fails, and `back` says
    that it works again: "records are shipped again". `problem` is the current fault; None if all is
    well. `monotonic` is a clock in seconds."""

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        back: str,
        monotonic: Callable[[], float] = loop_time,
    ) -> None:
        self.problem: str | None = None
        self._log = log
        self._what = what
        self._back = back
        self._monotonic = monotonic
        self._told: str | None = None
        self._told_at = float("-inf")

    @property
    def ongoing(self) -> bool:
        """True if there is an outage at the moment."""
        return self.problem is not None

    def failing(self, cause: object, pause: float = PAUSE_SECONDS) -> None:
        """Note that it fails, and the problem. A cause that alternates by itself needs the long
        `pause`; a cause that an operator's actions change may have a shorter one, in seconds."""
        self.problem = str(cause)
        now = self._monotonic()
        if now - self._told_at >= self._least(self.problem, pause):
            self._log.error("%s: %s", self._what, self.problem)
            self._told, self._told_at = self.problem, now

    def failing_on(self, what: str, path: Path, error: OSError) -> None:
        """Note that `what` failed by an error of the disk at `path`."""
        self.failing(f"{what}: {worded(error, path)}")

    def recovered(self) -> None:
        """Note that it works. The end of an outage is told only if its beginning was."""
        self.problem = None
        if self._told is not None:
            self._log.warning("recovered: %s", self._back)
        self._told = None

    def superseded(self) -> None:
        """Note that another problem, told elsewhere, took the place of this one: it has no end to
        tell either."""
        self.problem = self._told = None

    def _least(self, _problem: str, pause: float) -> float:
        """Return the seconds between the last line that something fails and one about this
        problem."""
        return pause if self._told is None else math.inf


class RepeatingOutageLogger(OutageLogger):
    """Logs an outage now and then while it lasts, and when its cause changes."""

    def _least(self, problem: str, pause: float) -> float:
        # Compared as text: an outage that changes its cause is worth another line.
        return REPEAT_SECONDS if problem == self._told else pause
