"""Finds the tests at the path that `sluice policy test` is given, runs them against their tenants'
policies, and reports the failures and the coverage as lines, JSON or JUnit XML.

    read_tenants(path)   reads a tree of tenants, a tenant's folder or part of it, or one test file
    watched(path)        the folder whose files the result depends on

`policies.definitions` decides which files are policies and which are tests.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from xml.etree import ElementTree as ET

from deploy.commands.policy.sources import Unusable
from policies.definitions.definition import (
    Definition,
    DefinitionFault,
    DefinitionFaults,
    LoadError,
    in_order,
    printable,
    shown,
)
from policies.definitions.load import load_tenant, parse_tree, read_text
from policies.definitions.policy_files import (
    MAX_DEPTH,
    TESTS,
    files,
    is_test,
    policy_tests,
    strays,
    tenants,
)
from policies.testing.cases import CaseFile, parse
from policies.testing.run import Coverage, Part, Result, Roles, compiled, policy, run
from policies.testing.run import failure as found


class Tenant(NamedTuple):
    """A tenant's policies and test files. File names are relative to the current folder, or
    absolute if the path on the command line was absolute."""

    definitions: list[Definition]
    tests: list[CaseFile]


def read_tenants(path: Path) -> list[Tenant]:
    """Read the tenants that have tests at or below `path`. Raises `Unusable` if there are none, or
    `LoadError` with every fault of every file."""
    folder = _tenant_folder(path)
    faults: list[DefinitionFault] = []
    if folder is not None:
        found = [_read(folder, path, path.is_absolute(), faults)]
    else:
        faults += _named(path, path.is_absolute(), strays(path))
        found = [
            _read(path.resolve() / name, path / name, path.is_absolute(), faults)
            for name in tenants(path)
        ]
    if faults:
        raise LoadError(in_order(faults))
    if not any(each.tests for each in found):
        raise Unusable(f"`{path}` holds no file that ends in `{TESTS}`")
    return found


def watched(path: Path) -> Path:
    """Return the folder whose files the result depends on: that of the tenant which `path` belongs
    to, or `path` itself if it holds several tenants."""
    return _tenant_folder(path) or path


def _tenant_folder(path: Path) -> Path | None:
    """Return the tenant's folder that `path` is or lies in; None if `path` is a directory of
    several tenants."""
    if not path.exists():
        raise Unusable(f"`{path}` does not exist")
    if path.is_file() and not is_test(path):
        raise Unusable(f"`{path}` is no file of tests: its name does not end in `{TESTS}`")
    if path.is_dir() and any(files(path, name)[0] for name in tenants(path)):
        return None
    here = path.resolve()
    # No further up than tests are looked for below a tenant's folder, and not the folders at the
    # top, such as `/tmp`: each would be searched as a tenant's.
    near = [above for above in here.parents if len(above.parts) > 2][: MAX_DEPTH + 1]
    for folder in (here, *near):
        if folder.is_dir() and files(folder.parent, folder.name)[0]:
            return folder
    raise Unusable(f"`{path}` holds no policies and is in no folder of a tenant that has some")


def _read(folder: Path, path: Path, absolute: bool, faults: list[DefinitionFault]) -> Tenant:
    """Read the policies of the tenant in `folder`, and those of its tests that lie below `path`.
    Faults in the files are added to `faults`."""
    definitions: list[Definition] = []
    found: list[Path] = []
    try:
        definitions = [
            Definition(_name(folder.parent / each.file, absolute), each.line, each.body)
            for each in load_tenant(folder.parent, folder.name)
        ]
        found = policy_tests(folder.parent, folder.name)
    except LoadError as error:
        faults += _named(folder.parent, absolute, error.faults)
    place = path.resolve()
    paths = [each for each in found if each.resolve().is_relative_to(place)]
    tests = [test for each in paths if (test := _cases(each, absolute, faults)) is not None]
    return Tenant(definitions, tests)


def _cases(path: Path, absolute: bool, faults: list[DefinitionFault]) -> CaseFile | None:
    found = DefinitionFaults(_name(path, absolute))
    cases: CaseFile | None = None
    try:
        text = read_text(path, found)
        tree = None if text is None else parse_tree(text, found)
        cases = None if tree is None else parse(tree, found)
    except DefinitionFaults.TooManyFaults:
        pass  # `found` keeps what was found, and its last entry says that there are more
    faults += found.found
    return cases


def _named(
    root: Path, absolute: bool, faults: Iterable[DefinitionFault]
) -> Iterable[DefinitionFault]:
    return [fault._replace(file=_name(root / fault.file, absolute)) for fault in faults]


def _name(path: Path, absolute: bool) -> str:
    full = os.path.realpath(path)
    return full if absolute else os.path.relpath(full)


Row = dict[str, Any]


def failure_text(file: str, result: Result, roles: Roles) -> Row:
    """Return a failed case as a row: the question, the expected answer and the actual decision."""
    return {"file": file, **found(result, roles)}


def failure_line(row: Row) -> str:
    """Return a failed case as one line of text, which begins with its file and line."""
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
    """Return a row for a policy, or an entry of one of its lists, that no case depends on. For a
    whole policy `list` and `entry` are null. The line number is always that of the policy."""
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
    """Collects the results of cases, and writes them to a file in JUnit's XML format."""

    def __init__(self) -> None:
        self._suites: dict[str, ET.Element] = {}

    def passed(self, file: str, name: str) -> None:
        self._case(file, name)

    def failed(self, file: str, name: str, line: str) -> None:
        """Add a failed case. `line` says where it stands, and what was expected and decided."""
        case = self._case(file, name)
        failure = ET.SubElement(case, "failure", message=_fit(line), type="decision")
        failure.text = _fit(line)

    def unreadable(self, fault: DefinitionFault) -> None:
        """Add an error for a file that could not be read, so that its cases were not run."""
        case = self._case(fault.file, f"line {fault.line}")
        ET.SubElement(case, "error", message=_fit(str(fault)), type="file")

    def write(self, path: Path) -> None:
        """Write the report to `path`. Raises `Unusable` if that fails."""
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
    """Return the text with those characters escaped that an XML document may not contain."""
    return _UNFIT.sub(lambda found: ascii(found.group())[1:-1], text)


SHOWN_EVERY = 10_000
"""The number of cases between two updates of the progress line."""


class Outcome:
    """The results of a run over all tenants: the number of cases and the failures. `coverage` has
    an item for each tenant, or none if coverage was not asked for."""

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
        """The percentage of policies and their entries that a case covers; 100 if there are
        none."""
        return 100 * self.covered / self.parts if self.parts else 100.0

    def decide(self, tenants: list[Tenant], *, coverage: bool) -> None:
        """Decide every case of the tenants, and add the results."""
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
        """Yield a row for each policy or entry that no case depends on, in the order of the
        files."""
        for coverage in self.coverage:
            for part in coverage.uncovered():
                yield uncovered(coverage, part)


class _Progress:
    """A progress line on standard error; nothing is printed if that is not a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._out: TextIO | None = sys.stderr if sys.stderr.isatty() else None

    def show(self, done: int) -> None:
        if self._out is not None:
            print(f"\r{done:,} of {self._total:,} cases", end="", file=self._out, flush=True)

    def end(self) -> None:
        """Erase the progress line from the terminal."""
        if self._out is not None and self._total >= SHOWN_EVERY:
            print("\r\x1b[K", end="", file=self._out, flush=True)


SECONDS = 0.2
"""The seconds between two looks at the files for changes."""

State = dict[str, tuple[int, int, int, int]]
"""A snapshot of files, to notice changes: the inode, size, and times of change of each file, by
path."""


def state(folder: Path) -> State:
    """Take a snapshot of the YAML files below `folder`, without hidden ones."""
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
    """Return once the files differ from the snapshot `known`, and two looks in a row agree: an
    editor may empty or remove a file before it writes the new content."""
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
