"""Logs an outage once when it begins and once when it ends, instead of once per attempt."""

import logging


class OutageLogger:
    """Logs the outages of one kind. `what` says what fails, and `back` that it works again.
    `ongoing` is true from the first `report` until `end`."""

    def __init__(self, log: logging.Logger, what: str, back: str) -> None:
        self.ongoing = False
        self._log = log
        self._what = what
        self._back = back

    def report(self, cause: object) -> None:
        if not self.ongoing:
            self._log.error("%s: %s", self._what, cause)
        self.ongoing = True

    def end(self) -> None:
        if self.ongoing:
            self._log.warning("recovered: %s", self._back)
        self.ongoing = False
