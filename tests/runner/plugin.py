"""Runs the collected tests in workers, and shows how far they have come: pytest's plugin.

Without `--workers`, pytest runs the tests in its own process, as a debugger needs it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import pytest

from tests import costs
from tests.costs import Cost
from tests.runner import second_tries, skips
from tests.runner.batches import Batch, costliest_first
from tests.runner.pool import Pool
from tests.runner.progress import Progress
from tests.runner.second_tries import Reports

_COLLECTING_SECONDS = 5.0
_MOST_SHOWN = 4000
"""Characters of a failure that the second try forgives."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the runner's options."""
    group = parser.getgroup("workers", "running tests side by side")
    group.addoption("--workers", default="0", help="processes that run tests; auto: by the cores")
    group.addoption(
        "--costs", action="store_true", help="measure each test; write tests/costs.json"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take over the run if there are workers."""
    workers = _count(config.getoption("--workers"))
    if workers and not config.option.collectonly:
        config.pluginmanager.register(Runner(config, workers), "workers")


def _count(given: str) -> int:
    """Twice as many workers as cores, since tests wait for disks, timers and other programs."""
    if given == "auto":
        return 2 * len(os.sched_getaffinity(0))
    try:
        return int(given)
    except ValueError as error:
        raise pytest.UsageError(f"--workers={given}: expected a number or `auto`") from error


class Runner:
    """Listens to the workers, and decides about second tries."""

    def __init__(self, config: pytest.Config, workers: int) -> None:
        self._config, self._workers = config, workers
        self._cost = costs.load()
        self._collected, self._shown = 0, time.monotonic()
        self._progress: Progress | None = None
        self._reports: dict[str, Reports] = {}
        self._failed: dict[str, Reports] = {}
        self._forgiven: list[str] = []
        self._measured: list[Cost] = []
        self._skipped: list[tuple[str, str]] = []
        self._hidden: list[str] = []

    @pytest.hookimpl
    def pytest_itemcollected(self) -> None:
        """Show that the collection goes on."""
        self._collected += 1
        now = time.monotonic()
        if now - self._shown >= _COLLECTING_SECONDS:
            self._shown = now
            self._write(f"collecting: {self._collected:,} tests so far")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # pytest says so
        nodeids = [item.nodeid for item in session.items]
        batches = costliest_first(nodeids, self._cost.of, self._workers)
        self._progress = Progress(self._write, len(nodeids), sum(b.cost for b in batches))
        self._write(f"{len(nodeids):,} tests in {len(batches):,} batches, {self._workers} workers")
        Pool(session, self._workers, self).run(batches)
        self._try_again(session)
        self._hidden = skips.unexpected(self._skipped) if "CI" in os.environ else []
        if self._hidden:
            session.shouldfail = f"{len(self._hidden)} tests were skipped that must run here"
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Show no letter for each test."""
        if hasattr(report, "wasxfail"):
            return None
        if report.skipped:
            return "skipped", "", ""
        return ("passed", "", "") if report.when == "call" and report.passed else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the slowest tests, and skips that hide what is missing."""
        for line in self._hidden:
            terminalreporter.write_line(f"UNEXPECTED SKIP {line}")
        if self._progress is not None:
            terminalreporter.section("slowest tests")
            for line in self._progress.slowest():
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Say as the last line which tests needed a second try; write down the costs."""
        if self._measured:
            self._write(costs.update(self._measured))
        if self._forgiven:
            tests = ", ".join(self._forgiven)
            passed = f"{len(self._forgiven)} passed at the second try"
            self._write(f"{passed}, see {second_tries.RECORD}: {tests}")

    def reported(self, report: pytest.TestReport) -> None:
        """A test's setup, call or teardown is over; or its worker died."""
        self._reports.setdefault(report.nodeid, []).append(report)

    def finished(self, nodeid: str) -> None:
        """All reports of the test have arrived: pass them on, unless it gets a second try."""
        assert self._progress is not None
        reports = self._reports.pop(nodeid, [])
        failed = any(report.failed for report in reports)
        self._progress.finished(
            nodeid, sum(each.duration for each in reports), self._cost.of(nodeid), failed=failed
        )
        if failed:
            self._write(f"FAILED {nodeid}")
        if failed and not self._config.option.maxfail and second_tries.may_be_forgiven(nodeid):
            self._failed[nodeid] = reports
        else:
            self._pass_on(reports)

    def cost(self, cost: Cost) -> None:
        """What a test cost has been measured."""
        self._measured.append(cost)

    def turn(self, running: dict[str, float]) -> None:
        """About a second has passed, or something has happened."""
        assert self._progress is not None
        self._progress.turn(running)

    def _try_again(self, session: pytest.Session) -> None:
        """Run each failed test once more, alone, if there are few."""
        failed, self._failed = self._failed, {}
        places = {item.nodeid: index for index, item in enumerate(session.items)}
        for nodeid, first in failed.items():
            if len(failed) <= second_tries.MOST and not session.shouldstop:
                self._write(f"once more: {nodeid}")
                again = _Alone()
                Pool(session, 1, again).run([Batch((places[nodeid],), 0.0)])
                if second_tries.judge(nodeid, first, again.reports, self._config.rootpath):
                    self._forgiven.append(nodeid)
                    # A clone of CI is gone afterwards, and its record with it.
                    how = second_tries.failed(first).longreprtext[-_MOST_SHOWN:]
                    self._write(f"passed now; how it failed at first:\n{how}")
                    self._pass_on(again.reports)
                    continue
            self._pass_on(first)

    def _pass_on(self, reports: Iterable[pytest.TestReport]) -> None:
        for report in reports:
            if report.skipped and isinstance(report.longrepr, tuple):
                self._skipped.append((report.nodeid, str(report.longrepr[2])))
            self._config.hook.pytest_runtest_logreport(report=report)

    def _write(self, line: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()


class _Alone:
    """Listens to the second try of one test."""

    def __init__(self) -> None:
        self.reports: Reports = []

    def reported(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def finished(self, nodeid: str) -> None:
        """Nothing is left to do."""

    def cost(self, cost: Cost) -> None:
        """Was measured at the first try."""

    def turn(self, running: dict[str, float]) -> None:
        """The pool ends a test that hangs."""
