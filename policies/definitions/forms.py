"""Declares the forms that a value in a YAML file may have: text, choice, number, list, mapping.

A form is a rule written once. `read` checks a value with it and keeps the line of every fault;
`schema` says the same as JSON Schema (2020-12), for editors. Knows no particular key: those are
declared in `policy_form.py` and its neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from policies.definitions.definition import (
    DefinitionFaults,
    Node,
    shown,
    surrogate_fault,
    unknown_key,
)
from policies.definitions.wildcard import is_pattern
from policies.ground.canonical import CONTROL_CHARACTERS, MAX_IDENTIFIER, identifier_fault

Schema = dict[str, Any]

_TAG_NAMES = {
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "timestamp": "a date",
}


class Form(Protocol):
    """The form of one value: what it may be."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        """Return the value in `node`. Each fault is added to `faults`, under `key`; the value is
        then of no use."""

    def schema(self) -> Schema:
        """Return the JSON Schema of the values that `read` accepts."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """A name, byte for byte (`CONTRACT.md`, Requests)."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        text: str = node.value
        if node.tag != "str":
            faults.add(node.line, key, f"must be a string{actual(node)}")
            return None
        fault = identifier_fault(text) or surrogate_fault(text)
        if fault:
            faults.add(node.line, key, fault)
        return text

    def schema(self) -> Schema:
        return {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_IDENTIFIER,
            "pattern": f"^[^{CONTROL_CHARACTERS}]*$",
        }


@dataclass(frozen=True, slots=True)
class ExactName:
    """A name that is not a pattern; `why` says the reason in a fault."""

    why: str

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        text = Identifier().read(key, node, faults)
        if text is not None and is_pattern(text):
            wrong = f"must not contain `*` or `?`, but is {shown(text)}: {self.why}"
            faults.add(node.line, key, wrong)
        return text

    def schema(self) -> Schema:
        return {**Identifier().schema(), "pattern": f"^[^*?{CONTROL_CHARACTERS}]*$"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    values: tuple[str, ...]

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        if node.tag == "str" and node.value in self.values:
            return str(node.value)
        words = ", ".join(f"`{each}`" for each in self.values)
        faults.add(node.line, key, f"must be one of {words}{actual(node)}")
        return None

    def schema(self) -> Schema:
        return {"enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A number from 1 on, of at most `digits` decimal digits."""

    digits: int

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> int | None:
        # Excludes `1_000`, `0x10`, `010` and `1:30`: YAML 1.1 takes all four for numbers, which
        # would surprise most people.
        text: str = node.value
        plain = node.tag == "int" and text.isdecimal() and text.isascii() and text[0] != "0"
        if plain and len(text) <= self.digits:
            return int(text)
        most = "9" * self.digits
        wrong = f"must be a whole number from 1 to {most}, in decimal digits"
        faults.add(node.line, key, wrong)
        return None

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": 1, "maximum": 10**self.digits - 1}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. `of` names its entries in a fault."""

    item: Form
    of: str = ""
    at_most: int | None = None

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> list[Any] | None:
        if node.tag == "list":
            if self.at_most is not None and len(node.value) > self.at_most:
                faults.add(node.line, key, f"must have at most {self.at_most} entries")
                return None
            return [self.item.read(key, each, faults) for each in node.value]
        # Null is refused too: YAML reads a list as null once all its items are commented out, and
        # that must not pass for an empty list.
        faults.add(node.line, key, f"must be a list{self.of}; write `[]` for none")
        return None

    def schema(self) -> Schema:
        limit = {} if self.at_most is None else {"maxItems": self.at_most}
        return {"type": "array", "items": self.item.schema(), **limit}


@dataclass(frozen=True, slots=True)
class Some:
    """A list that has an entry: where an absent list means all, an empty one would be a riddle."""

    form: ListOf
    instead: str = "leave it out for all"

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> list[Any] | None:
        if node.tag == "list" and node.value:
            return self.form.read(key, node, faults)
        if node.tag == "list":
            faults.add(node.line, key, f"must not be empty; {self.instead}")
        else:
            faults.add(node.line, key, f"must be a list{self.form.of}{actual(node)}")
        return None

    def schema(self) -> Schema:
        return {**self.form.schema(), "minItems": 1}


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that counts as absent if it is empty, as in `industry:`."""

    form: Form

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        return None if node.tag == "null" else self.form.read(key, node, faults)

    def schema(self) -> Schema:
        return or_null(self.form.schema())


def or_null(schema: Schema) -> Schema:
    """Return a schema that takes null too. It stays one schema where it can: editors say more of a
    value that doesn't fit one schema than of one that fits neither of two."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping. `says` is a sentence for the author who hovers over it."""

    form: Form
    says: str
    required: bool = False

    def schema(self) -> Schema:
        return {"description": self.says, **self.form.schema()}


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known keys. `wrong` is the fault of anything else."""

    keys: Mapping[str, Key]
    wrong: str = "must be a mapping"

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> dict[str, Any] | None:
        """Return the values of the keys that the mapping has. Every fault is collected: its author
        can then repair all of them at once."""
        if node.tag != "map":
            faults.add(node.line, key, self.wrong)
            return None
        members: dict[str, Node] = node.value
        found: dict[str, Any] = {}
        for name, each in members.items():
            if name in self.keys:
                found[name] = self.keys[name].form.read(name, each, faults)
            else:
                unknown_key(each.line, name, tuple(self.keys), faults)
        for name, declared in self.keys.items():
            if declared.required and name not in members:
                faults.add(node.line, name, "is required")
        return found

    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {name: key.schema() for name, key in self.keys.items()},
            "required": [name for name, key in self.keys.items() if key.required],
            "additionalProperties": False,
        }


def actual(node: Node) -> str:
    """Return the value that the file has instead, as YAML understands it: often not as the author
    meant it."""
    if node.tag == "str":
        return f", not {shown(node.value)}"
    if node.tag in ("list", "map"):
        return f", not a {'list' if node.tag == 'list' else 'mapping'}"
    if node.tag == "null" and not node.value:
        return ", but it is empty"
    kind = _TAG_NAMES.get(node.tag, node.tag)
    return f"; YAML reads {shown(node.value)} as {kind}, so quote it"
