"""Declares the forms of mappings with known keys. A `Record` stays a mapping; a `Declared` mapping
becomes a dataclass, whose fields give the keys, their types, their defaults and the sentences that
explain them."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from policies.definitions.definition import DefinitionFaults, Node, unknown_key
from policies.definitions.forms import (
    IDENTIFIER,
    LISTEN,
    Choice,
    FilePath,
    Form,
    Schema,
    or_null,
)
from policies.ground.addresses import ListenAddress
from policies.ground.settings import sentences


@dataclass(frozen=True, slots=True)
class Key:
    """The declaration of one key of a mapping. `form` is the form of its value. `says` is the
    sentence that an editor shows to the author. If a `required` key is missing, the fault is
    `absent`; any other missing key is read as if it had `default`, unless that is None. If
    `nullable` is false, null does not count as leaving the key out."""

    form: Form
    says: str = ""
    required: bool = False
    default: str | Mapping[str, Node] | None = None
    absent: str = "is required"
    nullable: bool = True


class Section:
    """One mapping of a file while it is read, for rules about several of its keys together. It
    knows which keys are present, and which had faults."""

    def __init__(self, key: str, node: Node, faults: DefinitionFaults) -> None:
        self.faults = faults
        self._key = key
        self._node = node
        self._faulty: set[str] = set()

    def has(self, key: str) -> bool:
        """Return whether the file gives `key` a value other than null."""
        node = self._node.value.get(key)
        return node is not None and node.tag != "null"

    def complain(self, key: str, fault: str) -> None:
        """Add a fault about the value of `key`, or about the whole mapping if `key` is empty."""
        self._faulty.add(key)
        line = self._node.value.get(key, self._node).line
        self.faults.add(line, self._place(key) if key else self._key, fault)

    def complained(self, key: str) -> bool:
        """Return whether the value of `key` had a fault."""
        return key in self._faulty

    def read(self, key: str, form: Form, node: Node) -> Any:
        before = len(self.faults.found)
        value = form.read(self._place(key), node, self.faults)
        if len(self.faults.found) > before:
            self._faulty.add(key)
        return value

    def items(self, key: str) -> list["Section"]:
        """Return the mappings in the list at `key`, as sections."""
        node = self._node.value.get(key)
        listed = enumerate(node.value) if node is not None and node.tag == "list" else ()
        places = ((self.faults.place(self._place(key), index), each) for index, each in listed)
        return [Section(place, each, self.faults) for place, each in places if each.tag == "map"]

    def _place(self, key: str) -> str:
        return self.faults.place(self._key, key)


@dataclass(frozen=True, slots=True)
class Record:
    """The form of a mapping with known keys. `wrong` is the fault of a value that is no mapping."""

    keys: Mapping[str, Key]
    wrong: str = "must be a mapping of keys to values"
    null: ClassVar[bool] = True
    """True if null is a value of a key; otherwise a key that is null counts as absent."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        """Return the values of the keys that the mapping has. Collects every fault, so that the
        author can repair all of them at once."""
        read = self.members(key, node, faults)
        return None if read is None else read[1]

    def members(
        self, key: str, node: Node, faults: DefinitionFaults
    ) -> tuple[Section, dict[str, Any]] | None:
        """Read a mapping, and return it as a section for more rules, with its values; None if it is
        no mapping."""
        if node.tag != "map":
            faults.add(node.line, key, self.wrong)
            return None
        section, found = Section(key, node, faults), {}
        absent = []
        for name, declared in self.keys.items():
            if name in node.value if self.null else section.has(name):
                found[name] = section.read(name, declared.form, node.value[name])
            elif declared.default is not None:
                tag = "str" if isinstance(declared.default, str) else "map"
                given = Node(node.line, tag, declared.default)
                found[name] = section.read(name, declared.form, given)
            elif declared.required:
                absent.append(name)
        for name, each in node.value.items():
            if name not in self.keys:
                place = faults.place(key, name)
                unknown_key(each.line, name, tuple(self.keys), faults, place)
        for name in absent:
            section.complain(name, self.keys[name].absent)
        return section, found

    def schema(self) -> Schema:
        says, forms = self.says(), {name: key.form.schema() for name, key in self.keys.items()}
        for name, key in self.keys.items():
            if key.nullable and not key.required and not self.null:
                forms[name] = or_null(forms[name])
        return {
            "type": "object",
            "properties": {name: {"description": says[name], **forms[name]} for name in forms},
            "required": [name for name, key in self.keys.items() if key.required],
            "additionalProperties": False,
        }

    def says(self) -> Mapping[str, str]:
        """Return the sentence that explains each key."""
        return {name: key.says for name, key in self.keys.items()}


Make = Callable[[Section, dict[str, Any]], Any]
"""A function that makes a dataclass from its fields' values. It may first add faults and change
values."""


@dataclass(frozen=True, slots=True)
class Declared(Record):
    """The form of a mapping that becomes the dataclass `into`. A null key counts as absent. A field
    whose key is absent or faulty has the default of its declaration; without a default it is None,
    or an empty text if it is required, so that the other keys can still be checked."""

    into: type[Any] = object
    make: Make | None = None
    null: ClassVar[bool] = False

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        read = self.members(key, node, faults)
        return None if read is None else self.made(*read)

    def made(self, section: Section, found: Mapping[str, Any]) -> Any:
        values = {}
        for each, (name, key) in zip(fields(self.into), self.keys.items(), strict=True):
            value = found.get(name)
            if isinstance(value, list):
                value = tuple(item for item in value if item is not None)
            if value is not None or not _has_default(each):
                values[each.name] = "" if value is None and key.required else value
        return self.into(**values) if self.make is None else self.make(section, values)

    def says(self) -> Mapping[str, str]:
        return dict(zip(self.keys, sentences(self.into).values(), strict=True))


def declared(into: type[Any], make: Make | None = None, **forms: Form | Key) -> Declared:
    """Return the form of the mapping that becomes the dataclass `into`. `forms` gives the forms of
    some fields; the other fields have the form that their type implies. A field without a default,
    whose type is not optional, is required. Raises `TypeError` if `into` has no field of a given
    name, and `KeyError` for a type that implies no form."""
    hints = get_type_hints(into)
    if unknown := forms.keys() - hints.keys():
        raise TypeError(f"{into.__name__} has no {', '.join(sorted(unknown))}")
    keys = {}
    for each in fields(into):
        required = not _has_default(each) and NoneType not in get_args(hints[each.name])
        form = forms.get(each.name) or _implied(hints[each.name], required)
        name = each.name.rstrip("_")  # `class_` is the key `class`
        keys[name] = form if isinstance(form, Key) else Key(form, required=required)
    return Declared(keys, into=into, make=make)


def _has_default(of: Field[Any]) -> bool:
    return of.default is not MISSING or of.default_factory is not MISSING


_OF_TYPE: Mapping[Any, Form] = {ListenAddress: LISTEN, str: IDENTIFIER}


def _implied(hint: Any, required: bool) -> Form:
    kinds = [each for each in get_args(hint) if each is not NoneType]
    if get_origin(hint) is Literal:
        return Choice(get_args(hint))
    if NoneType in get_args(hint):
        return _implied(kinds[0], required)
    if hint is Path:
        return FilePath("fault" if required else "none")
    return _OF_TYPE[hint]
