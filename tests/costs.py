"""What each test costs: CPU seconds a case, of all processes that it causes, in `costs.json`.

The table decides in which tier a test belongs (`runner/tiers.py`), in which order the batches run,
and whether the gate keeps to its budget. `make costs ARGS=tests/…` measures tests and updates it.
`python -m tests.costs move OLD NEW` follows a file or a folder that was moved; `… forget TEST …`
removes tests that are gone.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("costs.json")
UNKNOWN = 0.05
"""CPU seconds of a case that was never measured."""
FIXTURES = ""
"""The table's name for what a file's own fixtures cost, once a run."""
_DIGITS = 3
_FEW = 3

Table = dict[str, dict[str, float]]


class Cost(NamedTuple):
    """One case's cost, and that of the file's fixtures which it set up; CPU seconds."""

    nodeid: str
    seconds: float
    fixtures: float


class Costs:
    """File: function: CPU seconds a case."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def of(self, nodeid: str) -> float:
        """A case's CPU seconds; UNKNOWN if it was never measured."""
        return self.table.get(_file(nodeid), {}).get(_function(nodeid), UNKNOWN)


def load(file: Path = FILE) -> Costs:
    """The committed table."""
    return Costs(json.loads(file.read_text(encoding="utf-8")) if file.exists() else {})


def update(measured: Iterable[Cost], file: Path = FILE) -> str:
    """Write what was measured into the table. Returns a line for people."""
    table = load(file).table
    cases: dict[tuple[str, str], list[float]] = {}
    fixtures: dict[str, float] = {}
    for each in measured:
        name = _file(each.nodeid)
        cases.setdefault((name, _function(each.nodeid)), []).append(each.seconds)
        fixtures[name] = fixtures.get(name, 0.0) + each.fixtures
    for (name, function), each_case in cases.items():
        table.setdefault(name, {})[function] = _a_case(each_case)
    for name, seconds in fixtures.items():
        table[name][FIXTURES] = round(seconds, _DIGITS)
    _write(table, file)
    total = sum(map(sum, cases.values())) + sum(fixtures.values())
    return f"{file.name}: {len(cases):,} functions measured, {total:,.0f} CPU seconds in all"


def move(old: str, new: str, file: Path = FILE) -> int:
    """Let the entries of a file or a folder follow it. Returns how many files moved."""
    table = load(file).table
    prefix = old.rstrip("/") + "/"
    moved = 0
    for name in list(table):
        if name == old or name.startswith(prefix):
            table[new.rstrip("/") + name[len(old.rstrip("/")) :]] = table.pop(name)
            moved += 1
    _write(table, file)
    return moved


def forget(nodes: Iterable[str], file: Path = FILE) -> None:
    """Remove tests, each `file::function`, from the table."""
    table = load(file).table
    for node in nodes:
        table[_file(node)].pop(_function(node))
    _write({name: each for name, each in table.items() if each.keys() - {FIXTURES}}, file)


def _a_case(seconds: list[float]) -> float:
    """The mean, without the first use of what a process then keeps."""
    if len(seconds) >= _FEW:
        seconds = sorted(seconds)[:-1]
    return round(max(0.0, statistics.fmean(seconds)), _DIGITS)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _function(nodeid: str) -> str:
    """`test_x`, or `TestClass::test_x`, without the case."""
    return nodeid.partition("::")[2].partition("[")[0]


def _write(table: Table, file: Path) -> None:
    """A function a line, sorted, so that a change of one is a line's difference."""
    text = json.dumps(table, indent=0, sort_keys=True, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def main(words: list[str]) -> int:
    """Run a command on the committed table."""
    if len(words) == 3 and words[0] == "move":
        print(f"{move(words[1], words[2])} files moved")
    elif len(words) > 1 and words[0] == "forget":
        forget(words[1:])
    else:
        print("usage: python -m tests.costs move OLD NEW | forget TEST …", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
