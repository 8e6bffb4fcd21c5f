"""Declares the forms that a value in a YAML file may have: text, choice, number, path, list.
`policies.definitions.records` has those of mappings with known keys.

A form is a rule written once. Its `read` checks a value and keeps the line of every fault; its
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
TextCheck = Callable[[str], str | None]
"""A function that returns what is wrong with a text; None if nothing is."""

_TAG_NAMES = {
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "timestamp": "a date",
}


class Form(Protocol):
    """The rule for one value in a file: which values are valid, and how they are read."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        """Return the value in `node`. Each fault is added to `faults`, under `key`; if there was
        one, don't use the value."""

    def schema(self) -> Schema:
        """Return the JSON Schema of the values that `read` accepts."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string. `fault` says what is wrong with a text, and `limits` says the same as JSON Schema.
    `empty` is the message for a text that is empty or null, if that has a message of its own."""

    fault: TextCheck
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
"""The form of a name, which is kept byte for byte (`CONTRACT.md`, Requests)."""


def exact_name(why: str) -> Text:
    """Return the form of a name without wildcards. `why` is the reason that a fault gives for
    refusing a pattern."""

    def fault(text: str) -> str | None:
        wrong = f"must not contain `*` or `?`, but is {shown(text)}: {why}"
        return identifier_fault(text) or (wrong if is_pattern(text) else None)

    return Text(fault, {**_NAME_LIMITS, "pattern": f"^[^*?{CONTROL_CHARACTERS}]*$"})


def matching(pattern: re.Pattern[str], wrong: str, empty: str = "") -> Text:
    """Return the form of a text that the pattern matches from its start; if the pattern ends in
    `\\Z`, it must match the whole text. The fault of any other text is the text itself followed by
    `wrong`; `empty` is the fault of an empty text."""

    def fault(text: str) -> str | None:
        return None if pattern.match(text) else f"{shown(text)} {wrong}"

    # JSON Schema has the expressions of ECMAScript, which knows no `\A` and `\Z`.
    expression = pattern.pattern.replace(r"\A", "^").replace(r"\Z", "$")
    return Text(fault, {"pattern": f"^(?:{expression})"}, empty)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A string that `parse` turns into the value; if it raises `ValueError`, the message is the
    fault. With `scalar`, a number or truth value in YAML is accepted too, as text."""

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
"""The form of an address to listen on, such as `127.0.0.1:8700`."""


@dataclass(frozen=True, slots=True)
class FilePath:
    """A path, relative to the folder of the file that names it. `empty` says what an empty path
    means: a fault, None, or the folder itself. `load` is called with the path to try what is there;
    if it raises `ValueError`, the message is the fault."""

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
    """One of a few words, which are `values`."""

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
    """A truth value, `true` or `false`."""

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
    """A whole number of 1 or more, with at most `digits` decimal digits."""

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
    """A list of values of the form `item`. `of` names the entries in a fault."""

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
class NonEmptyList:
    """A list that must not be empty. It is for lists that mean "all" if they are absent, where an
    empty list would be ambiguous."""

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
    """A value of the form `item` that counts as absent if it is empty, as in `industry:`."""

    item: Form

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        return None if node.tag == "null" else self.item.read(key, node, faults)

    def schema(self) -> Schema:
        return or_null(self.item.schema())


def or_null(schema: Schema) -> Schema:
    """Return a schema that accepts null too. It stays one schema where possible, rather than become
    a choice of two: editors explain a mismatch with one schema better."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class MappingByName:
    """A mapping whose keys are names that its author chooses, with values of the form `item`. `of`
    names these values in a fault; `name` is the form of the names."""

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
    """Return the end of a message that says which value the file has instead, as YAML understands
    it, since that is often not what the author meant."""
    if node.tag == "str":
        return f", not {shown(node.value)}"
    if node.tag in ("list", "map"):
        return f", not a {'list' if node.tag == 'list' else 'mapping'}"
    if node.tag == "null" and not node.value:
        return ", but it is empty"
    kind = _TAG_NAMES.get(node.tag, node.tag)
    return f"; YAML reads {shown(node.value)} as {kind}, so quote it"
