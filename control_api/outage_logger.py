"""Logs an outage once when it begins and once when it ends, instead of once per attempt."""

import asyncio
import logging

PAUSE_SECONDS = 60.0
"""The shortest time between two lines that it began: a server that restarts answers once and then
not again."""


class OutageLogger:
    """Logs the outages of one kind, on the event loop. `what` says what fails, and `back` that it
    works again. `ongoing` is true from the first `report` until `end`."""

    def __init__(self, log: logging.Logger, what: str, back: str) -> None:
        self.ongoing = False
        self._log = log
        self._what = what
        self._back = back
        self._told = False
        self._told_at = float("-inf")

    def report(self, cause: object) -> None:
        self.ongoing = True
        now = asyncio.get_running_loop().time()
        if self._told or now - self._told_at < PAUSE_SECONDS:
            return
        self._told, self._told_at = True, now
        self._log.error("%s: %s", self._what, cause)

    def end(self) -> None:
        # An outage that was never told has no end to tell.
        if self._told:
            self._log.warning("recovered: %s", self._back)
        self.ongoing = self._told = False
