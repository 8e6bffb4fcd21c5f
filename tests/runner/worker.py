"""Runs tests in a fork of the process that collected them, and reports to it.

A worker asks for a batch when it is about to run its last test, since that test's teardown depends
on which test comes next. It ends when there are no more batches, or when the main process ends.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.support import ports

MORE, BEGIN, REPORT, FINISHED = "more", "begin", "report", "finished"
WARNING, COST, ENDED = "warning", "cost", "ended"
"""The kinds of message that a worker sends."""


@contextmanager
def ending_alone() -> Iterator[None]:
    """Wait until no other worker ends. At its end each removes dead links from the folder of all
    temporary folders, and one that another removes at the same moment would fail the run."""
    with Path(__file__).open("rb") as lock:
        flock(lock, LOCK_EX)
        yield


class Worker:
    """One fork: a plugin of its copy of pytest."""

    def __init__(self, session: pytest.Session, number: int, workers: int, link: Connection):
        self.session, self.number, self.workers = session, number, workers
        self._link = link
        self._waiting: deque[int] = deque()
        self._no_more = False
        self._begun = False
        self._failed = False

    def run(self) -> None:
        """Run batches until there are no more."""
        self._become_a_worker()
        self._begun = True
        hook = self.session.config.hook
        try:
            while (index := self._next()) is not None:
                self._link.send((BEGIN, index))
                following = self._peek()
                items = self.session.items
                after = None if following is None else items[following]
                hook.pytest_runtest_protocol(item=items[index], nextitem=after)
                self._link.send((FINISHED, items[index].nodeid))
                if self.session.shouldfail or self.session.shouldstop:
                    break  # before the main process can say so
        except (EOFError, ConnectionError, KeyboardInterrupt):
            self._failed = True  # the main process has ended, or is about to
        self.session.config.pluginmanager.unregister(name="terminalreporter")
        with ending_alone():
            hook.pytest_sessionfinish(session=self.session, exitstatus=int(self._failed))
        self._tell(ENDED, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report to the main process."""
        self._failed |= report.failed
        config = self.session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._tell(REPORT, data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        """Report to the main process: only text passes through a pipe for sure."""
        if not self._begun:
            return  # pytest repeats the main process's warnings to a new plugin
        kind = warning_message.category.__name__
        said = (f"{kind}: {warning_message.message}", warning_message.filename)
        self._tell(WARNING, (*said, warning_message.lineno, when, nodeid, location))

    def _become_a_worker(self) -> None:
        ports.deal_out(self.number, self.workers)
        config = self.session.config
        # By this name, pytest's own plugins know that another process writes the cache.
        config.workerinput = {}  # type: ignore[attr-defined]
        plugins = config.pluginmanager
        # What is captured goes to files, whose place in them a fork would share.
        capture: Any = plugins.get_plugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        plugins.unregister(name="terminalreporter")
        # pytest asks it for colours; it must not print.
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 # until the process ends
        silent = pytest.TerminalReporter(config, nowhere)
        plugins.register(silent, "terminalreporter")
        silent.pytest_sessionstart(self.session)
        plugins.register(self, "worker")
        if config.getoption("costs"):
            tell = functools.partial(self._tell, COST)
            from tests.runner.measuring import Measuring  # which imports the store

            plugins.register(Measuring(config, tell), "measuring")

    def _next(self) -> int | None:
        first = self._peek()
        if first is not None:
            self._waiting.popleft()
        return first

    def _peek(self) -> int | None:
        """The test after this one. Waits for the next batch if this one is finished."""
        while not self._no_more:
            told = self._link.poll()
            if self._waiting and not told:
                break
            if not told:
                self._link.send((MORE, None))
            batch = self._link.recv()
            if batch is None:  # no more, or the run was broken off
                self._no_more = True
                self._waiting.clear()
            else:
                self._waiting.extend(batch)
        return self._waiting[0] if self._waiting else None

    def _tell(self, kind: str, message: object) -> None:
        try:
            self._link.send((kind, message))
        except (BrokenPipeError, ConnectionError):
            self._failed = True
