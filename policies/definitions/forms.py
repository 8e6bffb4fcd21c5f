"""Declares the forms that a value in a YAML file may have: text, choice, number, path, list.
`policies.definitions.records` has those of mappings with known keys.

A form is a rule written once. `read` checks a value with it and keeps the line of every fault;
`schema` says the same as JSON Schema (2020-12), for editors. Knows no particular key: those are
declared in `policy_form.py` and its neighbours, and beside the settings of each program.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from policies.definitions.definition import DefinitionFaults, Node, shown, surrogate_fault
from policies.definitions.wildcard import is_pattern
from policies.ground.addresses import ListenAddress
from policies.ground.canonical import CONTROL_CHARACTERS, MAX_IDENTIFIER, identifier_fault

Schema = dict[str, Any]
Fault = Callable[[str], str | None]
"""Returns what is wrong with a text; None if it is fine."""

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
class Text:
    """A string. `limits` says in JSON Schema what `fault` says of a text; `empty` is the fault of
    one that is empty or null, if it has its own."""

    fault: Fault
    limits: Mapping[str, Any] = field(default_factory=dict)
    empty: str = ""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        if self.empty and (node.tag == "null" or node.value == ""):
            faults.add(node.line, key, self.empty)
            return None
        if not node.is_text:
            faults.add(node.line, key, f"must be a string{actual(node)}")
            return None
        text: str = node.value
        if fault := surrogate_fault(text) or self.fault(text):
            faults.add(node.line, key, fault)
        return text

    def schema(self) -> Schema:
        return {"type": "string", **({"minLength": 1} if self.empty else {}), **self.limits}


_NAME_LIMITS = {"minLength": 1, "maxLength": MAX_IDENTIFIER}
IDENTIFIER = Text(identifier_fault, {**_NAME_LIMITS, "pattern": f"^[^{CONTROL_CHARACTERS}]*$"})
"""A name, byte for byte (`CONTRACT.md`, Requests)."""


def exact_name(why: str) -> Text:
    """A name that is not a pattern; `why` says the reason in a fault."""

    def fault(text: str) -> str | None:
        wrong = f"must not contain `*` or `?`, but is {shown(text)}: {why}"
        return identifier_fault(text) or (wrong if is_pattern(text) else None)

    return Text(fault, {**_NAME_LIMITS, "pattern": f"^[^*?{CONTROL_CHARACTERS}]*$"})


def spelt(pattern: re.Pattern[str], wrong: str, empty: str = "") -> Text:
    """A text that the pattern matches from its start; all of it, if the pattern ends in `\\Z`.
    `wrong` is the fault of another, behind the text itself, and `empty` that of an empty one."""

    def fault(text: str) -> str | None:
        return None if pattern.match(text) else f"{shown(text)} {wrong}"

    # JSON Schema has the expressions of ECMAScript, which knows no `\A` and `\Z`.
    expression = pattern.pattern.replace(r"\A", "^").replace(r"\Z", "$")
    return Text(fault, {"pattern": f"^(?:{expression})"}, empty)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text that `parse` turns into the value; its `ValueError` is the fault. With `scalar`, the
    text may also be one that YAML takes for a number or a truth value."""

    parse: Callable[[str], Any]
    limits: Mapping[str, Any] = field(default_factory=dict)
    scalar: bool = False

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        if not node.is_text and (not self.scalar or node.tag in ("map", "list", "null")):
            faults.add(node.line, key, f"must be a string{actual(node)}")
            return None
        try:
            return self.parse(node.value)
        except ValueError as error:
            faults.add(node.line, key, str(error))
            return None

    def schema(self) -> Schema:
        return {"type": "string", **self.limits}


LISTEN = Parsed(ListenAddress.parse, {"pattern": ":[0-9]{1,5}$"})
"""An address to listen at."""


@dataclass(frozen=True, slots=True)
class FilePath:
    """A path, relative to the folder of the file that names it. `empty` says what an empty one is.
    `load` reads what it leads to; its `ValueError` is the fault."""

    empty: Literal["fault", "none", "folder"] = "none"
    load: Callable[[Path], object] | None = None
    scalar: bool = False

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Path | None:
        def parse(text: str) -> Path | None:
            if not text and self.empty == "fault":
                raise ValueError("must not be empty")
            if not text and self.empty == "none":
                return None
            # `base / "/etc/x"` is `/etc/x`: an absolute path stays as it is.
            path = faults.base / text
            if self.load is not None:
                self.load(path)
            return path

        found: Path | None = Parsed(parse, scalar=self.scalar).read(key, node, faults)
        return found

    def schema(self) -> Schema:
        return {"type": "string", **({"minLength": 1} if self.empty == "fault" else {})}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    values: tuple[str, ...]

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        if node.is_text and node.value in self.values:
            return str(node.value)
        words = ", ".join(f"`{each}`" for each in self.values)
        faults.add(node.line, key, f"must be one of {words}{actual(node)}")
        return None

    def schema(self) -> Schema:
        return {"enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> bool | None:
        # YAML 1.1 also takes `yes`, `on` and others for truth values; one spelling is enough.
        if node.tag == "bool" and node.value.lower() in ("true", "false"):
            return bool(node.value.lower() == "true")
        given = f", not {shown(node.value)}" if isinstance(node.value, str) else ""
        faults.add(node.line, key, f"must be `true` or `false`{given}")
        return None

    def schema(self) -> Schema:
        return {"type": "boolean"}


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
            places = (faults.place(key, index) for index in range(len(node.value)))
            return [self.item.read(*each, faults) for each in zip(places, node.value, strict=True)]
        # Null is refused too: YAML reads a list as null if the file is cut off after the key, or
        # once all items are commented out, and that must not pass for an empty list.
        faults.add(node.line, key, f"must be a list{self.of}{self._hint(node)}")
        return None

    def _hint(self, node: Node) -> str:
        if node.tag == "null" and not node.value:
            # No advice to write `[]`: as a file's policies, that withdraws every one.
            return ", but nothing follows the key: is the file cut off? `[]` means none"
        return "; write `[]` for none"

    def schema(self) -> Schema:
        limit = {} if self.at_most is None else {"maxItems": self.at_most}
        return {"type": "array", "items": self.item.schema(), **limit}


@dataclass(frozen=True, slots=True)
class Some:
    """A list that has an entry: where an absent list means all, an empty one would be a riddle."""

    item: ListOf
    instead: str = "leave it out for all"

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> list[Any] | None:
        if node.tag == "list" and node.value:
            return self.item.read(key, node, faults)
        if node.tag == "list":
            faults.add(node.line, key, f"must not be empty; {self.instead}")
        else:
            faults.add(node.line, key, f"must be a list{self.item.of}{actual(node)}")
        return None

    def schema(self) -> Schema:
        return {**self.item.schema(), "minItems": 1}


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that counts as absent if it is empty, as in `industry:`."""

    item: Form

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        return None if node.tag == "null" else self.item.read(key, node, faults)

    def schema(self) -> Schema:
        return or_null(self.item.schema())


def or_null(schema: Schema) -> Schema:
    """Return a schema that takes null too. It stays one schema where it can: editors say more of a
    value that doesn't fit one schema than of one that fits neither of two."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Named:
    """A mapping from names that its author chooses to values of one form. `of` names these in a
    fault; `name` is the form of the names."""

    item: Form
    of: str = ""
    name: Text | None = None

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> dict[str, Any] | None:
        if node.tag != "map":
            faults.add(node.line, key, f"must be a mapping by name{self.of}{actual(node)}")
            return None
        found = {}
        for name, value in node.value.items():
            if self.name and (fault := self.name.fault(name) or surrogate_fault(name)):
                faults.add(value.line, key, f"{shown(name)} {fault}")
            found[name] = self.item.read(faults.place(key, name), value, faults)
        return found

    def schema(self) -> Schema:
        names = {} if self.name is None else {"propertyNames": self.name.schema()}
        return {"type": "object", **names, "additionalProperties": self.item.schema()}


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
