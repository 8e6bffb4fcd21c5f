"""One run over the tests of some tenants: what failed, and what is covered."""

import sys
from collections.abc import Iterable
from typing import TextIO

from control_api.policy_tools.testing import output
from control_api.policy_tools.testing.junit import Report
from control_api.policy_tools.testing.tenants import Tenant
from policies.testing.cases import CaseFile
from policies.testing.coverage import Coverage
from policies.testing.run import Roles, compiled, policy, run

SHOWN_EVERY = 10_000
"""Cases between two lines of progress."""


class Outcome:
    """Collects what a run finds. `coverage` has an item for each tenant, if it was asked for."""

    def __init__(self, report: Report | None) -> None:
        self.cases = 0
        self.failures: list[output.Row] = []
        self.coverage: list[Coverage] = []
        self._report = report

    @property
    def parts(self) -> int:
        return sum(len(each.parts) for each in self.coverage)

    @property
    def covered(self) -> int:
        return sum(len(each.covered) for each in self.coverage)

    @property
    def percent(self) -> float:
        """Of the policies and entries, how many are covered; 100 if there are none."""
        return 100 * self.covered / self.parts if self.parts else 100.0

    def decide(self, tenants: list[Tenant], *, coverage: bool) -> None:
        """Decide every case."""
        progress = _Progress(sum(len(file) for tenant in tenants for file in tenant.tests))
        for tenant in tenants:
            roles = compiled(map(policy, tenant.definitions))
            covering = Coverage(tenant.definitions) if coverage else None
            if covering is not None:
                self.coverage.append(covering)
            for file in tenant.tests:
                self._decide_file(file, roles, covering, progress)
        progress.end()

    def _decide_file(
        self, file: CaseFile, roles: Roles, coverage: Coverage | None, progress: "_Progress"
    ) -> None:
        report = self._report
        for result in run(file, roles):
            self.cases += 1
            if not result.passed:
                failure = output.failure(file.file, result, roles)
                self.failures.append(failure)
                if report is not None:
                    report.failed(file.file, failure["name"], output.failure_line(failure))
            else:
                if coverage is not None:
                    coverage.add(result)
                if report is not None:
                    report.passed(file.file, result.case.name)
            if self.cases % SHOWN_EVERY == 0:
                progress.show(self.cases)

    def uncovered(self) -> Iterable[output.Row]:
        """The policies and entries that no case depends on, in the order of the files."""
        for coverage in self.coverage:
            for part in coverage.uncovered():
                yield output.uncovered(coverage, part)


class _Progress:
    """A line on a terminal; nothing if standard error is no terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._out: TextIO | None = sys.stderr if sys.stderr.isatty() else None

    def show(self, done: int) -> None:
        if self._out is not None:
            print(f"\r{done:,} of {self._total:,} cases", end="", file=self._out, flush=True)

    def end(self) -> None:
        """Remove the line."""
        if self._out is not None and self._total >= SHOWN_EVERY:
            print("\r\x1b[K", end="", file=self._out, flush=True)
