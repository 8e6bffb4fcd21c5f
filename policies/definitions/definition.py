"""What one policy of a file may say: its fields, their forms, and what is wrong with an entry.

Knows the fields of `service.md` 2.1 and the limits of contract section 1. Knows neither YAML nor
files: `policies.definitions.load` reads an entry into `Node`s, which remember their lines.
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
"""Of a policy, in the order of `service.md` 2.1."""

_REQUIRED = FIELDS[:5]
_LEVELS = ", ".join(f"`{name}`" for name in SENSITIVITIES)
# No `1_000`, `0x10`, `010` or `1:30`: YAML 1.1 reads all four as numbers, few readers do.
_DIGITS = re.compile(r"[1-9][0-9]{0,6}\Z")
_STRANGE = {
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "timestamp": "a date",
}
_ENOUGH = 100


class DefinitionFault(NamedTuple):
    """Something wrong at a place. `file` is relative to the policy directory; `line` counts from 1
    and is 0 where the file as a whole is meant; `key` is empty where no key is."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class LoadError(Exception):
    """a tenant's policy files can't be used; `faults` says why, all of them"""

    def __init__(self, faults: list[DefinitionFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Definition:
    """A policy as a file defines it, and where. `body` holds every field of 2.1: lists are there,
    scalars that are absent are None. It has no id and no version; those are the store's."""

    file: str
    line: int
    body: dict[str, Any]


class Node(NamedTuple):
    """A value in a file. `tag` is `map`, `list`, or the scalar's kind (`str`, `int`, …); `value`
    the members by key, the items, or the scalar's text."""

    line: int
    tag: str
    value: Any


def in_order(faults: Iterable[DefinitionFault]) -> list[DefinitionFault]:
    """By file and line; of one line, as they were found."""
    return sorted(faults, key=lambda fault: fault[:2])


class DefinitionFaults:
    """The faults of one file, at most a hundred: whoever has more has one mistake, often made."""

    class TooManyFaults(Exception):
        """so many faults that no more are looked for"""

    def __init__(self, file: str) -> None:
        self.file: Final = file
        self.found: list[DefinitionFault] = []

    def add(self, line: int, key: str, message: str) -> None:
        self.found.append(DefinitionFault(self.file, line, key, message))
        if len(self.found) == _ENOUGH:
            last = max(fault.line for fault in self.found)
            self.found.append(
                DefinitionFault(self.file, last, "", "the file has more faults than these")
            )
            raise DefinitionFaults.TooManyFaults


def shown(text: str) -> str:
    """Text of a file for a message: in backticks, on one line, at most 64 characters."""
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return f"`{plain[:64]}…`" if len(plain) > 64 else f"`{plain}`"


def label(key: str) -> str:
    """A key of a file as a `DefinitionFault` names it: empty where it would not read as one."""
    return key if key.isprintable() and len(key) <= 64 else ""


def unknown_key(line: int, key: str, known: tuple[str, ...], faults: DefinitionFaults) -> None:
    near = get_close_matches(key[:64], known, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(known)}"
    faults.add(line, label(key), f"is not known{hint}")


def define(
    entry: Node, industry: str, process_group: str, faults: DefinitionFaults
) -> Definition | None:
    """The definition in `entry`; None where `faults` got what is wrong with it. `industry` and
    `process_group` hold where the entry states none."""
    if entry.tag != "map":
        faults.add(entry.line, "policies", "each entry must be a mapping of a policy's fields")
        return None
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
        # Not even null: a list whose items were all commented out must say `[]` if it means that.
        faults.add(node.line, key, "must be a list of strings, `[]` where there are none")
        return None
    if node.tag == "null" and key not in _REQUIRED:
        return None
    if key == "session_ttl_minutes":
        if node.tag == "int" and _DIGITS.match(node.value):
            return int(node.value)
        faults.add(node.line, key, "must be a whole number from 1 to 9999999, in decimal digits")
        return None
    if key == "max_sensitivity":
        if node.tag == "str" and node.value in SENSITIVITIES:
            return node.value
        faults.add(node.line, key, f"must be one of {_LEVELS}{_instead(node)}")
        return None
    return _identifier(key, node, faults)


def _identifier(key: str, node: Node, faults: DefinitionFaults) -> str | None:
    """The text of an identifier (contract, section 1), kept byte for byte."""
    text: str = node.value
    if node.tag != "str":
        faults.add(node.line, key, f"must be a string{_instead(node)}")
        return None
    fault = identifier_fault(text) or surrogate_fault(text)
    if fault:
        faults.add(node.line, key, fault)
    return text


def surrogate_fault(text: str) -> str | None:
    """What is wrong where `text` can't be written in UTF-8."""
    return None if text.isprintable() or text.isascii() or _utf8(text) else "is not Unicode text"


def _utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _instead(node: Node) -> str:
    """What stands there, where YAML may have read it otherwise than it was meant."""
    if node.tag == "str":
        return f", is {shown(node.value)}"
    if node.tag in ("list", "map"):
        return f", is a {'list' if node.tag == 'list' else 'mapping'}"
    if node.tag == "null" and not node.value:
        return ", and nothing stands here"
    return f"; YAML reads {shown(node.value)} as {_STRANGE.get(node.tag, node.tag)}, so quote it"
