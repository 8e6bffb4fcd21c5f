"""Runs the tests of some tenants, and reports what failed and what is covered, as lines, JSON or
JUnit's XML."""

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree as ET

from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.testing.tenants import Tenant
from policies.definitions.definition import DefinitionFault, printable, shown
from policies.testing.cases import CaseFile
from policies.testing.run import Coverage, Part, Result, Roles, compiled, policy, run
from policies.testing.run import failure as found

Row = dict[str, Any]


def failure_text(file: str, result: Result, roles: Roles) -> Row:
    """What was asked, what was expected, and what the core decided."""
    return {"file": file, **found(result, roles)}


def failure_line(row: Row) -> str:
    """A failure on one line, with its place first."""
    check = f", check `{row['check']}`" if row["check"] else ""
    miss = row["nearest_miss"]
    nearest = f"; nearest miss: {printable(miss['change'])}" if miss else ""
    hint = f"; did you mean: {printable(row['suggestion'])}" if row["suggestion"] else ""
    return (
        f"{printable(row['file'])}:{row['line']}: {printable(row['name'])}: expected "
        f"{_expected(row['expected'])}, decided {row['decision']} by {shown(row['policy_name'])}"
        f"{check}: {printable(row['reason'])}{nearest}{hint}"
    )


def uncovered(coverage: Coverage, part: Part) -> Row:
    """A policy that no case depends on, or an entry of it: `list` and `entry` are null for a
    policy. The line is the policy's."""
    definition = coverage.definitions[part.policy_name]
    return {
        "file": definition.file,
        "line": definition.line,
        "policy_name": part.policy_name,
        "list": part.list,
        "entry": coverage.entry(part),
    }


def uncovered_line(row: Row) -> str:
    entry = f"{shown(row['entry'])} in `{row['list']}` of " if row["list"] else ""
    place = f"{printable(row['file'])}:{row['line']}"
    return f"{place}: not covered: {entry}policy {shown(row['policy_name'])}"


def _expected(expected: dict[str, str]) -> str:
    words = {"decision": "", "policy_name": "by ", "check": "check ", "reason": "reason "}
    return ", ".join(
        word + (expected[name] if name == "decision" else shown(expected[name]))
        for name, word in words.items()
        if name in expected
    )


# XML 1.0, section 2.2: what a document may not contain, escaped or not.
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Report:
    """Collects cases, and writes them to a file."""

    def __init__(self) -> None:
        self._suites: dict[str, ET.Element] = {}

    def passed(self, file: str, name: str) -> None:
        self._case(file, name)

    def failed(self, file: str, name: str, line: str) -> None:
        """`line` says what was expected and decided, and where."""
        case = self._case(file, name)
        failure = ET.SubElement(case, "failure", message=_fit(line), type="decision")
        failure.text = _fit(line)

    def unreadable(self, fault: DefinitionFault) -> None:
        """A fault of a file, whose cases were not run."""
        case = self._case(fault.file, f"line {fault.line}")
        ET.SubElement(case, "error", message=_fit(str(fault)), type="file")

    def write(self, path: Path) -> None:
        """Raises `Unusable` if the file can't be written."""
        root = ET.Element("testsuites", name="sluice policy test")
        for suite in (*self._suites.values(), root):
            if suite is not root:
                root.append(suite)
            for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
                suite.set(count, str(sum(1 for _ in suite.iter(tag))))
        ET.indent(root)
        try:
            ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
        except OSError as error:
            raise Unusable(f"`{path}` can't be written: {error.strerror}") from error

    def _case(self, file: str, name: str) -> ET.Element:
        suite = self._suites.get(file)
        if suite is None:
            suite = ET.Element("testsuite", name=_fit(file))
            self._suites[file] = suite
        return ET.SubElement(suite, "testcase", classname=_fit(file), name=_fit(name))


def _fit(text: str) -> str:
    """The text, with what XML can't hold escaped."""
    return _UNFIT.sub(lambda found: ascii(found.group())[1:-1], text)


SHOWN_EVERY = 10_000
"""Cases between two lines of progress."""


class Outcome:
    """Collects what a run finds. `coverage` has an item for each tenant, if it was asked for."""

    def __init__(self, report: Report | None) -> None:
        self.cases = 0
        self.failures: list[Row] = []
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
                failure = failure_text(file.file, result, roles)
                self.failures.append(failure)
                if report is not None:
                    report.failed(file.file, failure["name"], failure_line(failure))
            else:
                if coverage is not None:
                    coverage.add(result)
                if report is not None:
                    report.passed(file.file, result.case.name)
            if self.cases % SHOWN_EVERY == 0:
                progress.show(self.cases)

    def uncovered(self) -> Iterable[Row]:
        """The policies and entries that no case depends on, in the order of the files."""
        for coverage in self.coverage:
            for part in coverage.uncovered():
                yield uncovered(coverage, part)


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


SECONDS = 0.2
"""Between two looks."""

State = dict[str, tuple[int, int, int, int]]
"""Inode, size, and times of change of each file, by path."""


def state(folder: Path) -> State:
    """The state of the YAML files below `folder`, hidden ones left out."""
    found: State = {}
    seen: set[str] = set()
    # Kubernetes mounts files as links to folders, and a link may lead to a folder around it.
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        folders[:] = [] if real in seen else [name for name in folders if not _hidden(name)]
        if real in seen:
            continue
        seen.add(real)
        for name in names:
            if name.endswith((".yaml", ".yml")) and not _hidden(name):
                path = Path(here, name)
                try:
                    at = path.stat()
                except OSError:  # it was there a moment ago
                    continue
                found[str(path)] = (at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
    return found


def wait_for_change(folder: Path, known: State, pause: Callable[[float], object]) -> None:
    """Return once the state is no longer `known`, and has stayed as it is for one look: an editor
    may empty a file, or remove it, before it writes it."""
    # Asks for the state again and again: that needs no library, sees what every editor does when it
    # saves, and works on network mounts.
    before = known
    while True:
        pause(SECONDS)
        now = state(folder)
        if now != known and now == before:
            return
        before = now


def _hidden(name: str) -> bool:
    return name.startswith(".")
