"""What the analysis says about access (`policies/analysis/rows.py`), in words for people. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from policies.analysis.regions import EVERYTHING
from policies.analysis.rows import ABSENT
from policies.definitions.wildcard import matcher

SHOWN = 20
"""How many names a sentence has before it says how many more there are."""


class AccessInWords(NamedTuple):
    """A row: what a role may read, up to which level, by which agents, for which tasks, and by
    which policies."""

    role: str
    sources: str
    level: str
    agents: str
    tasks: str
    registered: list[str]
    more_registered: int
    policies: list[str]


def in_words(row: Mapping[str, Any]) -> AccessInWords:
    """A row of `GET /v1/policies/access`."""
    ids = row["agent_ids"]
    return AccessInWords(
        row["agent_role"],
        names(row["sources"], "every source"),
        row["levels"][-1],
        _callers(row["agents"], "every agent"),
        _callers(row["tasks"], "every task"),
        ids[:SHOWN],
        max(0, len(ids) - SHOWN),
        row["policies"],
    )


def _callers(items: Sequence[Any], everything: str) -> str:
    """Agents or tasks, and whether a call without one is meant too."""
    named = [each for each in items if each != ABSENT]
    words = [names(named, everything)] if named else []
    if len(named) < len(items):
        words.append("calls without one")
    return ", and ".join(words)


def names(items: Sequence[Any], everything: str) -> str:
    """Patterns and names, one after the other."""
    words = [item_in_words(each, everything) for each in items[:SHOWN]]
    more = len(items) - len(words)
    return ", ".join(words) + (f" and {more:,} more" if more else "")


def item_in_words(item: Any, everything: str = EVERYTHING) -> str:
    """One item of a row: a pattern, a name, or a pattern with exceptions."""
    if isinstance(item, str):
        return everything if item == EVERYTHING else item
    if "name" in item:
        return str(item["name"])
    some = [item["any"]] if isinstance(item["any"], str) else item["any"]
    besides = " and ".join(item_in_words(each) for each in item["except"])
    return f"{names(some, everything)} except {besides}"


def covers(items: Iterable[Any], name: str) -> bool:
    """Whether one of a row's items matches this name."""
    return any(_matches(item, name) for item in items)


def _matches(item: Any, name: str) -> bool:
    if isinstance(item, str):
        return item != ABSENT and matcher((item,))(name)
    if "name" in item:
        return bool(item["name"] == name)
    some = [item["any"]] if isinstance(item["any"], str) else item["any"]
    return covers(some, name) and not covers(item["except"], name)
