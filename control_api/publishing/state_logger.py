"""A trouble that lasts: a line in the log when it begins and when it ends, not one an attempt.
Knows no cause."""

import logging


class OutageLogger:
    """`lasts` from the first report to `over`."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self.lasts = False
        self._log = log
        self._what = what

    def is_(self, cause: object) -> None:
        if not self.lasts:
            self._log.error("%s: %s", self._what, cause)
        self.lasts = True

    def over(self) -> None:
        if self.lasts:
            self._log.warning("%s: well again", self._what)
        self.lasts = False
