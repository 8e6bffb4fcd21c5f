"""Formats the rows of the policy analysis as lines for people, and holds the options that several
commands of `sluice policy` have.

Every text from a policy file is shown on one line.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from deploy.commands.policy.sources import Unusable
from policies.analysis.regions import EVERYTHING
from policies.analysis.rows import ABSENT
from policies.definitions.definition import shown
from policies.ground.clock import UnreadableTime, read_time

Row = Mapping[str, Any]
SHOWN_IDS = 20
"""The most registered agents that are shown for a row; `--json` shows all of them."""


def access(row: Row) -> Iterator[str]:
    """Yield the lines that describe a row of `who` or `can`."""
    yield f"{shown(row['agent_role'])} may read {_names(row['sources'])} at {_levels(row)}"
    yield from _who(row)
    if ids := row.get("agent_ids"):
        more = f" and {len(ids) - SHOWN_IDS:,} more" if len(ids) > SHOWN_IDS else ""
        yield f"  registered: {', '.join(map(shown, ids[:SHOWN_IDS]))}{more}"
    yield f"  by policy: {', '.join(map(shown, row['policies']))}"


def nothing_allowed(asked: Row, may: str) -> str:
    """Return the answer of `who` or `can` if nothing is allowed, such as "no one may read …".
    `asked` are the command's options, `may` is `may` or `could`."""
    who = "no one" if asked["role"] is None else shown(asked["role"])
    what = "anything" if asked["source"] is None else shown(asked["source"])
    if asked["role"] is not None:
        may += " not"
    words = {"agent": "by agent", "level": "at", "task": "for task"}
    only = "".join(
        f" {word} {shown(asked[name])}" for name, word in words.items() if asked[name] is not None
    )
    return f"{who} {may} read {what}{only}"


def change(row: Row, word: str) -> Iterator[str]:
    """Yield the lines that describe a row of `diff`; `word` is `may` or `may no longer`."""
    yield f"{shown(row['agent_role'])} {word} read {_names(row['sources'])} at {_levels(row)}"
    yield from _who(row)
    asked = ", ".join(f"{name} {shown(value)}" for name, value in row["example"].items())
    yield f"  for example: {asked}"
    yield f"  before: {_decision(row['before'])}; after: {_decision(row['after'])}"


_DIRECTIONS = {
    "newly_allowed": ("+ ", "may newly read"),
    "newly_denied": ("- ", "may no longer read"),
    "unchanged": ("  ", "on"),
    "error": ("? ", "could not be decided on"),
}


def group(row: Row) -> Iterator[str]:
    """Yield the lines that describe a row of `impact`: a group of recorded decisions that the other
    policies decide differently, or equally but by another policy."""
    mark, word = _DIRECTIONS[row["direction"]]
    said = f"{shown(row['agent_role'])} {word} {shown(row['source_id'])}"
    if row["direction"] == "unchanged":
        said += ": the same, by another policy"
    yield f"{mark}{said}: {row['count']:,} from {row['first']} to {row['last']}"
    before, after = shown(row["policy_name_before"]), shown(row["policy_name_after"])
    yield f"    before by {before}, after by {after}"
    yield f"    for example: {', '.join(map(shown, row['example_event_ids']))}"


def broken(row: Row) -> Iterator[str]:
    """Yield the lines that describe a guardrail that does not hold, with the request that breaks
    it, as `check` prints it."""
    wrong = "is allowed" if row["decision"] == "ALLOW" else "is denied"
    check = f", check `{row['check']}`" if row["check"] else ""
    by = f"by {shown(row['policy_name'])}{check}"
    yield f"{row['file']}:{row['line']}: {shown(row['guardrail'])} is broken"
    asked = row["counterexample"].items()
    yield f"  {wrong} {by}: {', '.join(f'{name} {shown(value)}' for name, value in asked)}"


def _who(row: Row) -> Iterator[str]:
    yield f"  agents: {_callers(row['agents'], 'every agent')}"
    yield f"  tasks: {_callers(row['tasks'], 'every task')}"


def _callers(items: Sequence[Any], everything: str) -> str:
    """Return the agents or tasks of a row in words; `calls without one` if a request without an
    agent or task is among them."""
    named = [each for each in items if each != ABSENT]
    words = [_names(named, everything)] if named else []
    if len(named) < len(items):
        words.append("calls without one")
    return ", and ".join(words)


def _levels(row: Row) -> str:
    return ", ".join(row["levels"])


def _names(items: Iterable[Any], everything: str = "every source") -> str:
    return ", ".join(_item(item, everything) for item in items)


def _item(item: Any, everything: str) -> str:
    if isinstance(item, str):
        return everything if item == EVERYTHING else shown(item)
    if "name" in item:
        return shown(item["name"])
    some = [item["any"]] if isinstance(item["any"], str) else item["any"]
    besides = " and ".join(_item(each, everything) for each in item["except"])
    return f"{_names(some, everything)} except {besides}"


def _decision(decided: Row) -> str:
    check = f", check `{decided['check']}`" if decided["check"] else ""
    return f"{decided['decision']} by {shown(decided['policy_name'])}{check}"


def show(mark: str, lines: Iterable[str]) -> None:
    """Print the lines that describe one row, with `mark` before the first line."""
    for number, line in enumerate(lines):
        print(f"{mark}{line}" if number == 0 else line)


AddCommand = Callable[[str, str], argparse.ArgumentParser]
"""A function that adds a command, given its name and its line of help, and returns its parser."""


def add_output(command: argparse.ArgumentParser) -> None:
    """Add the options `--tenant` and `--json`."""
    command.add_argument("--tenant", metavar="ID", help="which of the directory's tenants")
    command.add_argument("--json", action="store_true", help="print JSON")


def typed_time(options: argparse.Namespace, option: str, text: str) -> int:
    """Parse the time that the user gave for `option`, and return it in microseconds since 1970 UTC.
    Raises `Unusable`."""
    now: int = options.clock.now()
    try:
        return read_time(text, now)
    except UnreadableTime as error:
        raise Unusable(f"{option}: {error}") from error
