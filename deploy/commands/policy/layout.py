"""Parses a YAML file into a tree that keeps the notation of each value, and writes the tree in one
layout.

A list of plain values stands on one line if it fits, otherwise each item on a line of its own.
Other collections keep the style that they were written in, if they fit. Each comment stays with its
entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

BREAK = re.compile("[\r\n\x85\u2028\u2029]")
"""Matches a line break, as YAML 1.1 defines it."""
_BLOCK = ("|", ">")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value of a YAML file. `text` is how it will be written: as its author wrote it if
    that was on one line, else in double quotes. `value` is its content; `start` and `end` are
    offsets in the text; `block` is True for a block scalar (`|` or `>`)."""

    text: str
    value: str
    plain: bool
    start: int
    end: int
    block: bool = False


@dataclass(slots=True)
class Collection:
    """A mapping or a list. `flow` is True if it is written in brackets. `column` is the column of
    its entries, `below` are the comments after its last entry."""

    entries: list[Entry]
    mapping: bool
    flow: bool
    column: int
    start: int
    end: int
    below: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Entry:
    """A member of a mapping, or an item of a list; an item has no `key`. `start` and `end` are
    offsets in the text, and `last_line` is the line of `end`. `above` are the lines with comments
    before the entry, an empty text for a blank line; `beside` is the comment at the end of its
    line."""

    key: Scalar | None
    value: Scalar | Collection
    start: int
    end: int
    last_line: int
    above: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)

    def scalars(self) -> Iterator[Scalar]:
        """Yield the entry's key and its value, each only if it is a scalar."""
        if self.key is not None:
            yield self.key
        if isinstance(self.value, Scalar):
            yield self.value


def parse(text: str) -> Collection:
    """Parse `text` into its tree. The loader must have accepted the text before: one document, a
    mapping, without aliases."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    found = _value(node, text)
    assert isinstance(found, Collection)
    return found


def walk(tree: Collection) -> Iterator[tuple[Entry, Collection]]:
    """Yield every entry of the tree, each with the collection that contains it; an outer entry
    before the entries inside it."""
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
        _read_entry(each if mapping else (None, each), text)  # a mapping's value is a list of pairs
        for each in node.value
    ]
    flow = bool(node.flow_style)
    # A block ends, to PyYAML, where the next token begins: behind its comments.
    end = node.end_mark.index if flow or not entries else entries[-1].end
    return Collection(entries, mapping, flow, node.start_mark.column, node.start_mark.index, end)


def _read_entry(pair: tuple[Node | None, Node], text: str) -> Entry:
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
    """Return the value as YAML text in double quotes, on one line."""
    dumped: str = yaml.safe_dump(value, default_style='"', width=float("inf"), allow_unicode=True)
    return dumped.rstrip("\n")


WIDTH = 100
_STEP = 2
_FLOW_SIGNS = frozenset(",[]{}")
# At least four letters: the words that YAML 1.1 reads as something else are listed, or shorter.
_WORD = re.compile(r"(?!(?:false|null|true)\Z)[a-z_]{4,64}")
_MODELINE = "# yaml-language-server:"

Schema = Mapping[str, Any]


def render(tree: Collection, schema: Schema) -> list[str]:
    """Return the lines of the file in the standard layout. The keys are sorted as in `schema`."""
    _order(tree, [schema], schema)
    header = _header(tree)
    return _tidy([*header, *_block(tree, 0)])


def _order(value: Scalar | Collection, forms: list[Schema], root: Schema) -> None:
    """Sort the keys of every mapping in the order of its schema; unknown keys come last. `forms`
    are the schemas that the value may have."""
    if not isinstance(value, Collection):
        return
    alternatives = [part for form in forms for part in _parts(form, root)]
    known: dict[str, list[Schema]] = {}
    for each in alternatives:
        for key, inner in each.get("properties", {}).items():
            known.setdefault(key, []).append(inner)
    others = [
        each["additionalProperties"] for each in alternatives if "additionalProperties" in each
    ]
    items = [each["items"] for each in alternatives if "items" in each]
    for entry in value.entries:
        name = None if entry.key is None else entry.key.value
        within = items if name is None else known.get(name, others)
        _order(entry.value, [each for each in within if isinstance(each, Mapping)], root)
    if value.mapping:
        places = {key: number for number, key in enumerate(known)}
        value.entries.sort(
            key=lambda entry: places.get(entry.key.value if entry.key else "", len(places))
        )


def _parts(schema: Schema, root: Schema) -> Iterator[Schema]:
    """Yield the schema, and all schemas that it refers to or combines (`$ref`, `anyOf`, `then`
    …)."""
    yield schema
    if "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        yield from _parts(found, root)
    for word in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(word, ()):
            yield from _parts(each, root)
    for word in ("then", "else"):
        if word in schema:
            yield from _parts(schema[word], root)


def _header(tree: Collection) -> list[str]:
    """Remove the comments about the whole file from the first entry, and return them: the line for
    editors, and the comments that a blank line separates from the first entry."""
    if not tree.entries:
        return []
    first = min(tree.entries, key=lambda entry: entry.start)
    above = first.above
    ends = [number + 1 for number, line in enumerate(above) if not line]
    modeline = int(bool(above) and above[0].startswith(_MODELINE))
    size = max([modeline, *ends])
    first.above = above[size:]
    return above[:size]


def _block(found: Collection, indent: int) -> list[str]:
    """Return the lines of a collection, with each entry on lines of its own."""
    lines: list[str] = []
    for number, entry in enumerate(found.entries):
        head = " " * indent + ("-" if entry.key is None else f"{_key(entry.key)}:")
        inner = _write_entry(entry, head, indent)
        above = [*entry.above, *_hoisted(entry)]
        if number == 0:
            above = above[next((at for at, line in enumerate(above) if line), len(above)) :]
        lines += [f"{' ' * indent}{line}" if line else "" for line in above]
        lines += inner
    lines += [f"{' ' * indent}{line}" if line else "" for line in found.below]
    return lines


def _write_entry(entry: Entry, head: str, indent: int) -> list[str]:
    beside = [line for line in entry.beside if line]
    entry.above += beside[:-1]
    comment = f"  {beside[-1]}" if beside else ""
    value = entry.value
    if isinstance(value, Scalar):
        return [f"{head} {value.text}".rstrip() + comment]
    flow = _flow(value)
    if flow is not None and len(head) + 1 + len(flow) <= WIDTH:
        return [f"{head} {flow}{comment}"]
    inner = _block(value, indent + _STEP)
    if entry.key is not None:
        return [head + comment, *inner]
    # The comment of an item whose first entry is on its line would be taken for that entry's.
    entry.above += beside[-1:]
    at = next(number for number, line in enumerate(inner) if line.strip()[:1] not in ("", "#"))
    return [f"{head} {inner[at].lstrip()}", *inner[at + 1 :]]


def _hoisted(entry: Entry) -> list[str]:
    """Return the comments above the first entry inside a list's item. They are written above the
    item, since they can't stand after its `-`."""
    value = entry.value
    if entry.key is not None or not isinstance(value, Collection) or not value.entries:
        return []
    first = value.entries[0]
    return [line for line in first.above if line] + _hoisted(first)


def _flow(value: Scalar | Collection) -> str | None:
    """Return the value on one line; None if it must not be on one line, because it contains
    comments or was written as a block."""
    if isinstance(value, Scalar):
        return _in_flow(value)
    plain = not value.mapping and all(isinstance(each.value, Scalar) for each in value.entries)
    if any(value.below) or (value.entries and not (plain or value.flow)):
        return None
    items: list[str] = []
    for entry in value.entries:
        inner = _flow(entry.value)
        if inner is None or any(entry.above) or any(entry.beside):
            return None
        items.append(inner if entry.key is None else f"{_key(entry.key)}: {inner}")
    text = ", ".join(items)
    return f"{{{text}}}" if value.mapping else f"[{text}]"


def _key(key: Scalar) -> str:
    """Return the key as it is written: without quotes if it is a simple word, as the keys of the
    schemas are."""
    return key.value if _WORD.fullmatch(key.value) else _in_flow(key)


def _in_flow(value: Scalar) -> str:
    if not value.plain:
        return value.text
    if not value.text:
        return "null"  # nothing at all can't stand in a list
    marks = _FLOW_SIGNS & set(value.text) or value.text[0] in "?:"
    return quoted(value.value) if marks else value.text


def _tidy(lines: list[str]) -> list[str]:
    """Return the lines with at most one blank line in a row, and with no blank line at the
    beginning or the end."""
    found: list[str] = []
    for line in lines:
        if line or (found and found[-1]):
            found.append(line)
    while found and not found[-1]:
        found.pop()
    return found
