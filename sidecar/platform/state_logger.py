"""One log line when an outage begins, changes or ends, instead of one per attempt."""

import logging


class StateLogger:
    """`problem` says what is wrong at the moment; None if all is well."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self.problem: str | None = None
        self._log = log
        self._what = what

    def failing(self, problem: str) -> None:
        # Compared as text: an outage that changes its cause is worth another line.
        if problem != self.problem:
            self._log.error("%s: %s", self._what, problem)
        self.problem = problem

    def recovered(self) -> None:
        if self.problem is not None:
            self._log.warning("%s: recovered", self._what)
        self.problem = None
