"""Runs a failed test once more, alone, at the end; keeps a record of those that pass then.

A machine that stands still for a second can fail a test of a correct product, and costs a day. But
both times that a submission was refused for such a test, the product had a rare fault: so each
entry of the record is looked into, and the second entry of one test fails the run.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

RECORD = Path("tests/second_tries.md")
MOST = 5
"""If more tests fail, something is broken, and none is tried again."""
NEVER = re.compile(r"^tests/(policies|control_api/log|vectors)/|golden")
"""What decides and what proves fails the run at its first failure."""

Reports = list[pytest.TestReport]


def may_be_forgiven(nodeid: str) -> bool:
    """Whether a second try is allowed for this test at all."""
    return NEVER.search(nodeid) is None


def judge(nodeid: str, first: Reports, second: Reports, root: Path) -> bool:
    """Whether the second try lets the run pass; if so, the test is added to the record. Otherwise,
    what the second try showed is added to the first failure."""
    report = failed(first)
    if not second or any(each.failed for each in second):
        report.sections.append(("second try", "failed again, alone"))
        return False
    if _has_entry(nodeid, root):
        said = f"passed, but {RECORD} has it already: find the cause"
        report.sections.append(("second try", said))
        return False
    _append(nodeid, report, root)
    return True


def failed(reports: Reports) -> pytest.TestReport:
    """The report of how the test failed."""
    return next(each for each in reports if each.failed)


def _has_entry(nodeid: str, root: Path) -> bool:
    record = root / RECORD
    return record.exists() and f"| `{nodeid}` |" in record.read_text(encoding="utf-8")


def _append(nodeid: str, report: pytest.TestReport, root: Path) -> None:
    lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
    reason = (lines or ["no message"])[-1].replace("|", "\\|").replace("`", "'")
    day = dt.datetime.now(tz=dt.UTC).date()
    with (root / RECORD).open("a", encoding="utf-8") as record:
        record.write(f"| {day} | `{nodeid}` | {reason[:200]} |\n")
