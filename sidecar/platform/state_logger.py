"""Logs when an outage begins, now and then while it lasts, and when it ends, instead of a line per
attempt."""

import logging
from collections.abc import Callable
from pathlib import Path

from policies.ground.os_errors import worded

PAUSE_SECONDS = 60.0
"""The shortest time between two lines that something fails. It holds for the state and not for the
text: a cause that alternates between two texts, or an outage that comes and goes, fills no log."""
REPEAT_SECONDS = 600.0
"""The time after which an outage is told again although its cause is the same."""


class StateLogger:
    """`what` names what fails, and `back` says that it works again: "records are shipped again".
    `problem` says what is wrong at the moment; None if all is well. `monotonic` is a clock in
    seconds."""

    def __init__(
        self, log: logging.Logger, what: str, back: str, monotonic: Callable[[], float]
    ) -> None:
        self.problem: str | None = None
        self._log = log
        self._what = what
        self._back = back
        self._monotonic = monotonic
        self._told: str | None = None
        self._told_at = float("-inf")

    def failing(self, problem: str, pause: float = PAUSE_SECONDS) -> None:
        """Note that it fails, and why. A cause that alternates by itself needs the long `pause`;
        one that changes by what an operator does may have a shorter one, in seconds."""
        self.problem = problem
        now = self._monotonic()
        # Compared as text: an outage that changes its cause is worth another line.
        least = REPEAT_SECONDS if problem == self._told else pause
        if now - self._told_at >= least:
            self._log.error("%s: %s", self._what, problem)
            self._told, self._told_at = problem, now

    def failing_on(self, what: str, path: Path, error: OSError) -> None:
        """Note that `what` failed by an error of the disk at `path`."""
        self.failing(f"{what}: {worded(error, path)}")

    def recovered(self) -> None:
        """Note that it works. An outage that was never told has no end to tell."""
        self.problem = None
        if self._told is not None:
            self._log.warning("recovered: %s", self._back)
        self._told = None
