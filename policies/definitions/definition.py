"""Validates one policy of a file: checks its fields and their forms, and reports every fault.

Knows the fields of `service.md` 2.1 and the limits of contract section 1. Knows neither YAML nor
files: `policies.definitions.load` parses an entry into `Node`s, which keep their line numbers.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from policies.definitions.model import SENSITIVITIES
from policies.ground.json_body import identifier_fault

LISTS = (
    "allowed_sources",
    "denied_sources",
    "allowed_tasks",
    "denied_tasks",
    "permitted_agent_ids",
)
FIELDS = (
    "name",
    "agent_role",
    "allowed_sources",
    "denied_sources",
    "max_sensitivity",
    "allowed_tasks",
    "denied_tasks",
    "session_ttl_minutes",
    "permitted_agent_ids",
    "industry",
    "process_group",
)
"""A policy's fields, in the order of `service.md` 2.1."""

_REQUIRED = FIELDS[:5]
_LEVELS = ", ".join(f"`{name}`" for name in SENSITIVITIES)
# Excludes `1_000`, `0x10`, `010` and `1:30`: YAML 1.1 takes all four for numbers, which would
# surprise most people.
_DIGITS = re.compile(r"[1-9][0-9]{0,6}\Z")
_TAG_NAMES = {
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "timestamp": "a date",
}
_MAX_FAULTS = 100


class DefinitionFault(NamedTuple):
    """A fault and where it is. `file` is relative to the policy directory; `line` counts from 1,
    and 0 means the whole file; `key` is empty if the fault concerns no key."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class LoadError(Exception):
    """a tenant's policy files can't be used; `faults` lists every reason"""

    def __init__(self, faults: list[DefinitionFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Definition:
    """A policy as a file defines it, and its place there. `body` holds every field of 2.1; an
    absent list is empty and an absent scalar is None. The store adds the id and the version."""

    file: str
    line: int
    body: dict[str, Any]


class Node(NamedTuple):
    """A value in a file. `tag` is `map`, `list`, or the scalar's kind (`str`, `int`, …); `value` is
    the members by key, the items, or the scalar's text."""

    line: int
    tag: str
    value: Any


def in_order(faults: Iterable[DefinitionFault]) -> list[DefinitionFault]:
    """Sorted by file and line; faults on one line keep their order."""
    return sorted(faults, key=lambda fault: fault[:2])


class DefinitionFaults:
    """Collects the faults of one file, at most a hundred: more are usually one mistake,
    repeated."""

    class TooManyFaults(Exception):
        """the file has so many faults that checking it stopped"""

    def __init__(self, file: str) -> None:
        self.file: Final = file
        self.found: list[DefinitionFault] = []

    def add(self, line: int, key: str, message: str) -> None:
        self.found.append(DefinitionFault(self.file, line, key, message))
        # A one-mebibyte file could otherwise produce more text than anyone reads or a log holds.
        if len(self.found) == _MAX_FAULTS:
            last = max(fault.line for fault in self.found)
            message = f"the file has more faults; only the first {_MAX_FAULTS} are listed"
            self.found.append(DefinitionFault(self.file, last, "", message))
            raise DefinitionFaults.TooManyFaults


def shown(text: str) -> str:
    """Text from a file, quoted for a message: in backticks, on one line, at most 64 characters."""
    # A message is one line of a log: a line break in a policy's name must not begin another.
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return f"`{plain[:64]}…`" if len(plain) > 64 else f"`{plain}`"


def label(key: str) -> str:
    """A key as a `DefinitionFault` names it; empty if it is too long or not printable."""
    return key if key.isprintable() and len(key) <= 64 else ""


def unknown_key(line: int, key: str, known: tuple[str, ...], faults: DefinitionFaults) -> None:
    # Cut the key: the comparison takes quadratic time, and a key may be as long as the file.
    near = get_close_matches(key[:64], known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"expected {', '.join(known)}"
    faults.add(line, label(key), f"unknown key; {hint}")


def define(
    entry: Node, industry: str, process_group: str, faults: DefinitionFaults
) -> Definition | None:
    """The definition in `entry`; None if it has faults, which are added to `faults`. `industry` and
    `process_group` are the defaults for an entry that names none."""
    if entry.tag != "map":
        faults.add(entry.line, "policies", "each entry must be a mapping of a policy's fields")
        return None
    # Collect every fault of the entry: its author can then repair all of them at once.
    before = len(faults.found)
    members: dict[str, Node] = entry.value
    body: dict[str, Any] = {name: [] if name in LISTS else None for name in FIELDS}
    for key, node in members.items():
        if key not in body:
            unknown_key(node.line, key, FIELDS, faults)
        else:
            body[key] = _field(key, node, faults)
    for key in _REQUIRED:
        if key not in members:
            faults.add(entry.line, key, "is required")
    body["industry"] = body["industry"] or industry
    body["process_group"] = body["process_group"] or process_group
    return Definition(faults.file, entry.line, body) if len(faults.found) == before else None


def _field(key: str, node: Node, faults: DefinitionFaults) -> Any:
    if key in LISTS:
        if node.tag == "list":
            return [_identifier(key, item, faults) for item in node.value]
        # Null is refused too: YAML reads a list as null once all its items are commented out, and
        # that must not pass for an empty list.
        faults.add(node.line, key, "must be a list of strings; write `[]` for none")
        return None
    if node.tag == "null" and key not in _REQUIRED:
        return None  # `industry:` without a value counts as absent
    if key == "session_ttl_minutes":
        if node.tag == "int" and _DIGITS.match(node.value):
            return int(node.value)
        faults.add(node.line, key, "must be a whole number from 1 to 9999999, in decimal digits")
        return None
    if key == "max_sensitivity":
        if node.tag == "str" and node.value in SENSITIVITIES:
            return node.value
        faults.add(node.line, key, f"must be one of {_LEVELS}{_actual(node)}")
        return None
    return _identifier(key, node, faults)


def _identifier(key: str, node: Node, faults: DefinitionFaults) -> str | None:
    """The text of an identifier, byte for byte (contract, section 1)."""
    text: str = node.value
    if node.tag != "str":
        faults.add(node.line, key, f"must be a string{_actual(node)}")
        return None
    fault = identifier_fault(text) or surrogate_fault(text)
    if fault:
        faults.add(node.line, key, fault)
    return text


def surrogate_fault(text: str) -> str | None:
    """The fault of a text that UTF-8 can't encode: it holds a lone surrogate."""
    if text.isprintable() or text.isascii():
        return None  # a surrogate is neither
    lone = any("\ud800" <= character <= "\udfff" for character in text)
    return "is not Unicode text" if lone else None


def _actual(node: Node) -> str:
    """What the file has instead, as YAML understands it: often not what the author meant."""
    if node.tag == "str":
        return f", not {shown(node.value)}"
    if node.tag in ("list", "map"):
        return f", not a {'list' if node.tag == 'list' else 'mapping'}"
    if node.tag == "null" and not node.value:
        return ", but it is empty"
    kind = _TAG_NAMES.get(node.tag, node.tag)
    return f"; YAML reads {shown(node.value)} as {kind}, so quote it"
