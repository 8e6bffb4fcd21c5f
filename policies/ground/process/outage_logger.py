"""Logs when an outage begins and when it ends, instead of a line per attempt."""

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path

from policies.ground.errors import worded

PAUSE_SECONDS = 60.0
"""The shortest time between two lines that say that something fails. It holds even if the text
differs: a cause that alternates between two texts, or an outage that comes and goes, must not fill
the log."""
REPEAT_SECONDS = 600.0
"""The time in seconds after which a `RepeatingOutageLogger` logs an outage again although its cause
is the same."""


def loop_time() -> float:
    """Return the time of the running event loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


class OutageLogger:
    """Logs an outage once when it begins, with its first cause, and once when it ends. `what` names
    what fails; `back` is the text for its end, such as "records are shipped again". `problem` is
    the current fault, None if all is well. `monotonic` returns seconds."""

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
        """True while there is an outage."""
        return self.problem is not None

    def failing(self, cause: object, pause: float = PAUSE_SECONDS) -> None:
        """Note a failure and its cause. Logs it unless that would be too soon: `pause` is the least
        number of seconds between two lines. A cause that alternates by itself needs the long
        default; one that an operator's actions change may have a shorter pause."""
        self.problem = str(cause)
        now = self._monotonic()
        if now - self._told_at >= self._least(self.problem, pause):
            self._log.error("%s: %s", self._what, self.problem)
            self._told, self._told_at = self.problem, now

    def failing_on(self, what: str, path: Path, error: OSError) -> None:
        """Note that the action `what` failed with an error of the file or disk at `path`."""
        self.failing(f"{what}: {worded(error, path)}")

    def recovered(self) -> None:
        """Note that it works again. The end of an outage is logged only if its beginning was."""
        self.problem = None
        if self._told is not None:
            self._log.warning("recovered: %s", self._back)
        self._told = None

    def superseded(self) -> None:
        """Note that another problem, which is logged elsewhere, took the place of this one. Its end
        is not logged."""
        self.problem = self._told = None

    def _least(self, _problem: str, pause: float) -> float:
        """Return the least number of seconds between the last line about a failure and a line about
        this problem."""
        return pause if self._told is None else math.inf


class RepeatingOutageLogger(OutageLogger):
    """Logs an outage again every `REPEAT_SECONDS` while it lasts, and when its cause changes."""

    def _least(self, problem: str, pause: float) -> float:
        # Compared as text: an outage that changes its cause is worth another line.
        return REPEAT_SECONDS if problem == self._told else pause
