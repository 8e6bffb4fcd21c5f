"""Forks the workers, deals batches out to them, and passes their reports on to pytest."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, Protocol

import pytest

from tests.runner import worker
from tests.runner.batches import Batch
from tests.runner.worker import Worker

LONGEST_SECONDS = 900.0
"""A test that runs for longer hangs: its worker is killed, and the test has failed."""
_TURN = 1.0
_FORK = multiprocessing.get_context("fork")


class Listener(Protocol):
    """Who is told what happens."""

    def reported(self, report: pytest.TestReport) -> None:
        """A test's setup, call or teardown is over; or its worker died."""

    def finished(self, nodeid: str) -> None:
        """All reports of the test have arrived."""

    def cost(self, cost: Any) -> None:
        """What a test cost has been measured."""

    def turn(self, running: dict[str, float]) -> None:
        """About a second has passed. Each running test's seconds."""


@dataclass(eq=False)
class _Fork:
    """A worker, as the main process knows it."""

    number: int
    process: ForkProcess
    link: Connection
    given: deque[int] = field(default_factory=deque)
    """The tests that it has been given and not begun."""
    running: int | None = None
    since: float = 0.0


class Pool:
    """The workers of a run."""

    def __init__(self, session: pytest.Session, workers: int, listener: Listener) -> None:
        self._session, self._workers, self._listener = session, workers, listener
        self._waiting: deque[list[int]] = deque()
        self._forks: list[_Fork] = []
        self._broken_off = False

    def run(self, batches: Iterable[Batch]) -> None:
        """Run all batches; return when each worker has ended. Ends early if the session is to
        stop: each worker then finishes its test."""
        self._waiting.extend(list(batch.tests) for batch in batches)
        try:
            for number in range(min(self._workers, len(self._waiting))):
                self._fork(number)
            while self._forks:
                self._turn()
                if self._session.shouldfail or self._session.shouldstop:
                    self._break_off()
        finally:
            self._end()

    def _fork(self, number: int) -> None:
        ours, theirs = _FORK.Pipe()
        process = _FORK.Process(target=self._in_fork, args=(number, ours, theirs))
        sys.stdout.flush()
        sys.stderr.flush()
        process.start()
        theirs.close()
        self._forks.append(_Fork(number, process, ours))

    def _in_fork(self, number: int, ours: Connection, theirs: Connection) -> None:
        for link in (ours, *(fork.link for fork in self._forks)):
            link.close()  # else no worker would notice that the main process has ended
        Worker(self._session, number, self._workers, theirs).run()

    def _turn(self) -> None:
        ready = multiprocessing.connection.wait([fork.link for fork in self._forks], _TURN)
        for fork in [each for each in self._forks if each.link in ready]:
            try:
                kind, message = fork.link.recv()
            except (EOFError, ConnectionError):
                self._died(fork, "its worker died")
            else:
                self._told(fork, kind, message)
        now = time.monotonic()
        for fork in self._forks:
            if fork.running is not None and now - fork.since > LONGEST_SECONDS:
                fork.process.kill()
                self._died(fork, f"it ran for more than {LONGEST_SECONDS:.0f} s")
        items = self._session.items
        busy = [fork for fork in self._forks if fork.running is not None]
        self._listener.turn({items[f.running or 0].nodeid: now - f.since for f in busy})

    def _told(self, fork: _Fork, kind: str, message: Any) -> None:
        config = self._session.config
        if kind == worker.MORE:
            batch = self._waiting.popleft() if self._waiting else None
            fork.given.extend(batch or ())
            _send(fork, batch)
        elif kind == worker.BEGIN:
            fork.running, fork.since = message, time.monotonic()
            fork.given.remove(message)
        elif kind == worker.FINISHED:
            fork.running = None
            self._listener.finished(message)
        elif kind == worker.REPORT:
            restore = config.hook.pytest_report_from_serializable
            self._listener.reported(restore(config=config, data=message))
        elif kind == worker.WARNING:
            self._warn(*message)
        elif kind == worker.COST:
            self._listener.cost(message)
        elif kind == worker.ENDED:
            self._forks.remove(fork)
            fork.link.close()
            fork.process.join()

    def _warn(self, text: str, file: str, line: int, when: str, nodeid: str, place: Any) -> None:
        message = warnings.WarningMessage(UserWarning(text), UserWarning, file, line)
        self._session.config.hook.pytest_warning_recorded.call_historic(
            kwargs={
                "warning_message": message, "when": when, "nodeid": nodeid, "location": place,
            }
        )  # fmt: skip

    def _died(self, fork: _Fork, why: str) -> None:
        """The test that ran, or was next, has failed; a new worker runs the others. A worker that
        dies before it got a test ends the run: another would die as well."""
        self._forks.remove(fork)
        fork.link.close()
        fork.process.join()
        if fork.running is None and fork.given:
            fork.running = fork.given.popleft()
        if fork.running is None:
            raise RuntimeError(f"{why} without a test (exit code {fork.process.exitcode})")
        item = self._session.items[fork.running]
        ended = f"{why} (exit code {fork.process.exitcode}) during {item.nodeid}"
        self._listener.reported(
            pytest.TestReport(item.nodeid, item.location, {}, "failed", ended, "call")
        )
        self._listener.finished(item.nodeid)
        if fork.given:
            self._waiting.appendleft(list(fork.given))
        if self._waiting and not self._broken_off:
            self._fork(fork.number)

    def _break_off(self) -> None:
        if self._broken_off:
            return
        self._broken_off = True
        self._waiting.clear()
        for fork in self._forks:
            fork.given.clear()
            _send(fork, None)

    def _end(self) -> None:
        """Wait for workers that are left after an interruption, then kill those that stay."""
        for fork in self._forks:
            fork.link.close()
        for fork in self._forks:
            fork.process.join(timeout=20)
            if fork.process.is_alive():
                fork.process.kill()
                fork.process.join()


def _send(fork: _Fork, batch: list[int] | None) -> None:
    """Tell a worker. If it has ended already, the next turn hears of it."""
    with contextlib.suppress(ConnectionError):
        fork.link.send(batch)
