"""A YAML file as a tree of entries that keep how each value was written.

Knows PyYAML's nodes and their places in the text. Knows no comments, no schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

BREAK = re.compile("[\r\n\x85\u2028\u2029]")
"""What ends a line in YAML 1.1."""
_BLOCK = ("|", ">")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value as it is to be written: as its author did, if that was on one line."""

    text: str
    value: str
    plain: bool
    start: int
    end: int
    block: bool = False


@dataclass(slots=True)
class Collection:
    """A mapping or a list. `column` is that of its entries; `below` are comments after the last."""

    entries: list[Entry]
    mapping: bool
    flow: bool
    column: int
    start: int
    end: int
    below: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Entry:
    """A member of a mapping, or an item of a list, which has no `key`. `start` and `end` are places
    in the text, `last_line` is the line of `end`. `above` are the comments before it, empty for a
    blank line; `beside` is the comment at the end of its line."""

    key: Scalar | None
    value: Scalar | Collection
    start: int
    end: int
    last_line: int
    above: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)

    def scalars(self) -> Iterator[Scalar]:
        """Its key and its value, if they are scalars."""
        if self.key is not None:
            yield self.key
        if isinstance(self.value, Scalar):
            yield self.value


def parse(text: str) -> Collection:
    """The tree of `text`, which the loader has accepted: one document, a mapping, no aliases."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    found = _value(node, text)
    assert isinstance(found, Collection)
    return found


def walk(tree: Collection) -> Iterator[tuple[Entry, Collection]]:
    """Every entry with its collection, an outer one before those in it."""
    for entry in tree.entries:
        yield entry, tree
        if isinstance(entry.value, Collection):
            yield from walk(entry.value)


def _value(node: Node, text: str) -> Scalar | Collection:
    if isinstance(node, ScalarNode):
        return _scalar(node, text)
    assert isinstance(node, MappingNode | SequenceNode)
    mapping = isinstance(node, MappingNode)
    entries = [
        _entry(each if mapping else (None, each), text)  # a mapping's value is a list of pairs
        for each in node.value
    ]
    flow = bool(node.flow_style)
    # A block ends, to PyYAML, where the next token begins: behind its comments.
    end = node.end_mark.index if flow or not entries else entries[-1].end
    return Collection(entries, mapping, flow, node.start_mark.column, node.start_mark.index, end)


def _entry(pair: tuple[Node | None, Node], text: str) -> Entry:
    key_node, node = pair
    key = None if key_node is None else _scalar(key_node, text)
    value = _value(node, text)
    start = value.start if key is None else key.start
    if isinstance(value, Scalar) or value.flow or not value.entries:
        last_line = node.end_mark.line
    else:
        last_line = value.entries[-1].last_line
    return Entry(key, value, start, value.end, last_line)


def _scalar(node: Node, text: str) -> Scalar:
    start, end = node.start_mark.index, node.end_mark.index
    written = text[start:end]
    style = node.style if isinstance(node, ScalarNode) else None
    if style in _BLOCK or BREAK.search(written):
        return Scalar(quoted(node.value), node.value, False, start, end, style in _BLOCK)
    return Scalar(written, node.value, style is None, start, end)


def quoted(value: str) -> str:
    """The text in double quotes, on one line."""
    dumped: str = yaml.safe_dump(value, default_style='"', width=float("inf"), allow_unicode=True)
    return dumped.rstrip("\n")
