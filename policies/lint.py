"""Warns about policies that are valid but probably not what their author meant.

Works on `Definition`s and reads no file. A warning has no effect: the policies are in force as they
are written.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from policies.definitions.definition import Definition, DefinitionFault, in_order, shown
from policies.definitions.policy_form import LISTS
from policies.definitions.wildcard import is_pattern, matcher

_WILD = ("allowed_sources", "denied_sources", "permitted_agent_ids")
"""The lists in which `*` and `?` are wildcards (contract, section 3)."""


def lint(definitions: Iterable[Definition]) -> list[DefinitionFault]:
    """A warning for each likely mistake, sorted by file and line."""
    return in_order(
        DefinitionFault(each.file, each.line, key, f"{shown(each.body['name'])}: {message}")
        for each in definitions
        for key, message in _warnings(each.body)
    )


def _warnings(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _reach(body)
    for allowed, denied in (
        ("allowed_sources", "denied_sources"),
        ("allowed_tasks", "denied_tasks"),
    ):
        for entry in sorted(set(body[allowed]) & set(body[denied])):
            yield denied, f"{shown(entry)} is also in `{allowed}`; the denial wins"
    for key in sorted(LISTS):
        yield from _entries(key, body[key])


def _reach(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    allowed, denied = body["allowed_sources"], body["denied_sources"]
    if not allowed:
        yield "allowed_sources", "allows no source"
    elif "*" in denied:
        yield "denied_sources", "`*` denies every source, the allowed ones too"
    elif "*" in allowed and body["max_sensitivity"] == "critical":
        yield "allowed_sources", "allows every source at every sensitivity"
    # A name that both lists contain word for word has its own warning.
    hidden = matcher(entry for entry in denied if is_pattern(entry))
    for entry in allowed:
        if not is_pattern(entry) and entry not in denied and "*" not in denied and hidden(entry):
            yield "allowed_sources", f"{shown(entry)} matches a pattern in `denied_sources`"


def _entries(key: str, entries: list[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for entry in entries:
        if entry in seen:
            yield key, f"{shown(entry)} is listed twice"
        seen.add(entry)
        if entry != entry.strip():
            yield key, f"{shown(entry)} begins or ends with white space, which is significant"
        if key in _WILD and "[" in entry:
            yield key, f"{shown(entry)}: `[` is literal, not a character class"
        if key not in _WILD and is_pattern(entry):
            yield key, f"{shown(entry)}: `*` and `?` are not wildcards in this list"
    if key in _WILD:
        yield from _unreachable(key, seen)


def _unreachable(key: str, entries: set[str]) -> Iterator[tuple[str, str]]:
    """Entries that have no effect because a pattern in the same list covers them."""
    # Compile each pattern by itself: the warning names the one that covers the entry.
    patterns = [(entry, matcher([entry])) for entry in sorted(entries) if is_pattern(entry)]
    for entry in sorted(entries):
        for pattern, covers in patterns:
            # Whether one pattern covers another is only checked for `*`, which covers all.
            if entry != pattern and (pattern == "*" or (not is_pattern(entry) and covers(entry))):
                yield key, f"{shown(entry)} is redundant: {shown(pattern)} covers it"
                break
