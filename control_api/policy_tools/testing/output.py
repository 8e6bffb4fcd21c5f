"""What a run of tests found, as lines for people and as rows of JSON."""

from typing import Any

from policies.definitions.definition import printable, shown
from policies.testing.coverage import Coverage, Part
from policies.testing.run import Result, Roles
from policies.testing.run import failure as found

Row = dict[str, Any]


def failure(file: str, result: Result, roles: Roles) -> Row:
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
