"""Rows of the analysis as lines for people. Text from policy files is shown on one line."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policies.analysis.rows import ABSENT
from policies.definitions.definition import shown

Row = Mapping[str, Any]


def access(row: Row) -> Iterator[str]:
    """What a row of `who` or `can` says."""
    yield f"{shown(row['agent_role'])} may read {_names(row['sources'])} at {_levels(row)}"
    yield from _who(row)
    yield f"  by policy: {', '.join(map(shown, row['policies']))}"


def change(row: Row, word: str) -> Iterator[str]:
    """What a row of `diff` says; `word` is `may` or `may no longer`."""
    yield f"{shown(row['agent_role'])} {word} read {_names(row['sources'])} at {_levels(row)}"
    yield from _who(row)
    asked = ", ".join(f"{name} {shown(value)}" for name, value in row["example"].items())
    yield f"  for example: {asked}"
    yield f"  before: {_decision(row['before'])}; after: {_decision(row['after'])}"


def _who(row: Row) -> Iterator[str]:
    yield f"  agents: {_names(row['agents'], 'the call without one')}"
    yield f"  tasks: {_names(row['tasks'], 'the call without one')}"


def _levels(row: Row) -> str:
    return ", ".join(row["levels"])


def _names(items: Iterable[Any], absent: str = "") -> str:
    return ", ".join(_item(item, absent) for item in items)


def _item(item: Any, absent: str) -> str:
    if isinstance(item, str):
        return absent if item == ABSENT and absent else "any" if item == "*" else shown(item)
    if "name" in item:
        return shown(item["name"])
    some = [item["any"]] if isinstance(item["any"], str) else item["any"]
    return f"{_names(some)} except {' and '.join(_item(each, '') for each in item['except'])}"


def _decision(decided: Row) -> str:
    check = f", check `{decided['check']}`" if decided["check"] else ""
    return f"{decided['decision']} by {shown(decided['policy_name'])}{check}"


def show(mark: str, lines: Iterable[str]) -> None:
    """Print the lines of one row, the first after `mark`."""
    for number, line in enumerate(lines):
        print(f"{mark}{line}" if number == 0 else line)
