"""A trouble that lasts: one log line when it begins, changes or ends, not one for each attempt."""

import logging


class StateLogger:
    """`now` is what is wrong, None where nothing is."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self.now: str | None = None
        self._log = log
        self._what = what

    def is_(self, trouble: str) -> None:
        if trouble != self.now:
            self._log.error("%s: %s", self._what, trouble)
        self.now = trouble

    def over(self) -> None:
        if self.now is not None:
            self._log.warning("%s: well again", self._what)
        self.now = None
