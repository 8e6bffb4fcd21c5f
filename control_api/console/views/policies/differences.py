"""What differs between two policies: field by field, for words; line by line; and by what an
analysis says. Knows no page."""

from collections.abc import Mapping
from difflib import unified_diff
from typing import Any, NamedTuple

from policies.definitions.policy_form import FIELDS, LISTS

ROWS = 100
"""Rows of what is newly allowed, and of what is newly denied."""


class FieldChange(NamedTuple):
    """One field's change: items of a list that came and went, or a value before and after, of
    which None is an absent one."""

    field: str
    added: list[str]
    removed: list[str]
    before: str | int | None
    after: str | int | None
    is_list: bool


def field_changes(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[FieldChange]:
    """The fields that differ, in the order of a policy file. Without `old` everything is new."""
    found = []
    for field in FIELDS:
        before, after = None if old is None else old[field], new[field]
        if field in LISTS:
            was, is_now = before or [], after or []
            if was != is_now:
                added = [each for each in is_now if each not in set(was)]
                removed = [each for each in was if each not in set(is_now)]
                found.append(FieldChange(field, added, removed, None, None, is_list=True))
        elif before != after:
            found.append(FieldChange(field, [], [], before, after, is_list=False))
    return found


def line_changes(old: str, new: str) -> list[tuple[str, str]]:
    """Lines of `new` and `old` with `+`, `-` or a space before each, and three around each change;
    `@` stands for lines that are left out. Empty if they are alike."""
    lines = list(unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:]
    return [("@", "") if each.startswith("@@") else (each[0], each[1:]) for each in lines]


def shortened(found: dict[str, Any]) -> dict[str, Any]:
    """The answer of a diff or a review with at most `ROWS` rows of each kind, and how many there
    are `more`."""
    kinds = ("newly_allowed", "newly_denied")
    return {
        "found": found | {kind: found[kind][:ROWS] for kind in kinds},
        "more": {kind: max(0, len(found[kind]) - ROWS) for kind in kinds},
    }
