"""A mapping that becomes a dataclass: what its fields declare is what is read, said and refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from policies.definitions.definition import DefinitionFaults
from policies.definitions.forms import ListOf, WholeNumber
from policies.definitions.load import parse_tree
from policies.definitions.records import declared


@dataclass(frozen=True, slots=True)
class Leaf:
    """An item of the list."""

    name: str
    """The name."""
    class_: Literal["a", "b"] = "a"
    """The class."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole mapping."""

    file: Path
    """The file."""
    alias: str | None
    """The alias."""
    leaves: tuple[Leaf, ...] = ()
    """The leaves."""


FORM = declared(Whole, leaves=ListOf(declared(Leaf)))


def read(text: str) -> tuple[object, list[str]]:
    faults = DefinitionFaults("f.yaml", Path("/etc"))
    tree = parse_tree(text, faults)
    assert tree is not None
    return FORM.read("", tree, faults), [str(each) for each in faults.found]


def test_fields_determine_types_defaults_and_requirements() -> None:
    text = "file: x\nalias:\nleaves: [{name: l, class: b}, {name: m}]"
    leaves = (Leaf("l", "b"), Leaf("m"))
    assert read(text) == (Whole(Path("/etc/x"), None, leaves), [])
    _, told = read("alais: y\nleaves: [{class: c}]")
    assert told == [
        "f.yaml:2: class: must be one of `a`, `b`, not `c`",
        "f.yaml:2: name: is required",
        "f.yaml:1: alais: unknown key; did you mean `alias`?",
        "f.yaml:1: file: is required",
    ]
    schema = FORM.schema()
    assert schema["required"] == ["file"]
    leaf = schema["properties"]["leaves"]["items"]
    assert leaf["properties"]["class"] == {"description": "The class.", "enum": ["a", "b", None]}


def test_a_field_or_type_that_is_not_known_fails_where_it_is_declared() -> None:
    with pytest.raises(TypeError, match="Leaf has no size"):
        declared(Leaf, size=WholeNumber(2))
    with pytest.raises(KeyError):
        declared(Whole)
