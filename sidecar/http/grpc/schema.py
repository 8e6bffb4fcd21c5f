"""The fields of messages, written as text:

    SearchPoints
        1 collection_name string @collection
        2 vector float*; 4 limit uint64
        8 score_threshold float ?
    Selector
        oneof kind
            1 enable bool
            2 include Include
    Point
        3 payload map<string, Value>
        4 vectors raw

A line without indentation names a message. Its fields follow: number, name, type, marks; several
may share a line, with `;` between. The types are protocol buffers' scalars, `enum` (an int), the
name of another message of the text, `map<key, value>`, and `raw`: a message or bytes that are kept
undecoded, such as a vector. `*` after the type: repeated. `?`: a scalar whose presence counts.
`@word`: a string that names something to judge, of the kind `word`.
"""

import re
from collections.abc import Iterator
from typing import Final

from sidecar.http.grpc.wire import BYTES, FIXED32, FIXED64, VARINT, varint

VARINTS: Final = {
    # The least and the greatest value.
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
    "sint32": (-(1 << 31), (1 << 31) - 1),
    "sint64": (-(1 << 63), (1 << 63) - 1),
    "bool": (0, 1),
    "enum": (-(1 << 31), (1 << 31) - 1),
}
FIXED: Final = {
    # As `struct` names them.
    "double": "<d",
    "fixed64": "<Q",
    "sfixed64": "<q",
    "float": "<f",
    "fixed32": "<I",
    "sfixed32": "<i",
}
_PLAIN = frozenset((*VARINTS, *FIXED, "string", "bytes", "raw"))
_EIGHT = frozenset(("double", "fixed64", "sfixed64"))
UNREAD: Final = frozenset(("float", "double"))
"""The types whose repeated form is kept as bytes: vectors."""

_FIELD = re.compile(
    r"(\d+) (\w+) (map<\w+, \w+>|\w+)(\*?)( \?)?(?: @(\w+))?",
).fullmatch


class Field:
    """One field of a message. `kind` is its type; `message` is set if that is a message or a map,
    whose entries are messages of the fields `key` and `value`."""

    __slots__ = (
        "bit", "group", "is_map", "kind", "leads", "mark", "message", "name", "number", "prefix",
        "present", "repeated", "tag", "wire",
    )  # fmt: skip

    def __init__(
        self, number: int, name: str, kind: str, *, repeated: bool, present: bool, mark: str
    ) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.repeated = repeated
        self.present = present or kind == "raw"
        """True if the field counts even with its type's default value."""
        self.mark = mark
        """The kind of thing that the string names; empty for none."""
        self.group = ""
        """The `oneof` that the field belongs to; empty for none."""
        self.bit = 0
        """A bit for each singular field of the message, the same for all members of a `oneof`: a
        message may have each once. 0 if the field is repeated."""
        self.message: MessageFields | None = None
        self.is_map = False
        self.leads = bool(mark)
        """True if the field, or one within it, has a mark."""
        self.wire = BYTES
        if kind in VARINTS:
            self.wire = VARINT
        elif kind in FIXED:
            self.wire = FIXED64 if kind in _EIGHT else FIXED32
        packed = repeated and self.wire != BYTES
        self.tag = number << 3 | (BYTES if packed else self.wire)
        """The tag with which the field is written."""
        self.prefix = varint(self.tag)
        """The same as bytes."""


class MessageFields:
    """The fields of one message, by name and by tag."""

    __slots__ = ("by_tag", "fields", "name", "ordered")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[str, Field] = {}
        self.by_tag: dict[int, Field] = {}
        self.ordered: tuple[Field, ...] = ()
        """The fields by number, as they are written."""

    def add(self, field: Field) -> None:
        for other in self.ordered:
            if field.name == other.name or field.number == other.number:
                raise ValueError(f"`{self.name}` has the field `{field.name}` or its number twice")
        if not field.repeated:
            field.bit = 1 << len(self.fields)
            for other in self.ordered:
                if field.group and field.group == other.group:
                    field.bit = other.bit
        self.fields[field.name] = field
        self.by_tag[field.tag] = field
        # A repeated number may also be sent one by one.
        self.by_tag[field.number << 3 | field.wire] = field
        self.ordered = tuple(sorted(self.fields.values(), key=lambda each: each.number))


def parse_schema(text: str) -> dict[str, MessageFields]:
    """Return the messages of a schema by name. Raises `ValueError` for a mistake in it."""
    messages: dict[str, MessageFields] = {}
    current: MessageFields | None = None
    group, group_indent = "", 0
    for indent, line in _lines(text):
        if not indent:
            if line in messages or not line.isidentifier():
                raise ValueError(f"the schema has the message `{line}` twice, or it is no name")
            current = messages[line] = MessageFields(line)
            group = ""
            continue
        if current is None:
            raise ValueError(f"the schema begins with a field: `{line}`")
        if line.startswith("oneof "):
            group, group_indent = line.removeprefix("oneof "), indent
            continue
        if indent <= group_indent:
            group = ""
        for part in line.split(";"):
            current.add(_field(part.strip(), group))
    for message in list(messages.values()):
        for field in message.ordered:
            _link(field, messages)
    _mark_leading(messages)
    return messages


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for line in text.splitlines():
        stripped = line.strip()
        if stripped:
            yield len(line) - len(line.lstrip()), stripped


def _field(text: str, group: str) -> Field:
    found = _FIELD(text)
    if found is None:
        raise ValueError(f"not a field: `{text}`")
    number, name, kind, repeated, present, mark = found.groups()
    if mark and kind != "string":
        raise ValueError(f"only a string can be marked: `{text}`")
    # A member of a `oneof` is present even if it is zero, and a repeated one always has elements.
    counts = bool(present or group or repeated)
    many = bool(repeated) or kind.startswith("map<")
    field = Field(int(number), name, kind, repeated=many, present=counts, mark=mark or "")
    field.group = group
    return field


def _link(field: Field, messages: dict[str, MessageFields]) -> None:
    if field.kind.startswith("map<"):
        key, _, value = field.kind[4:-1].partition(", ")
        entry = MessageFields(f"entry of `{field.name}`")
        for number, name, kind in ((1, "key", key), (2, "value", value)):
            part = Field(number, name, kind, repeated=False, present=True, mark="")
            _link(part, messages)
            entry.add(part)
        field.message, field.is_map = entry, True
    elif field.kind in messages:
        field.message, field.present = messages[field.kind], True
    elif field.kind not in _PLAIN:
        raise ValueError(f"the schema has no message `{field.kind}`")


def _mark_leading(messages: dict[str, MessageFields]) -> None:
    changed = True
    while changed:
        changed = False
        for message in messages.values():
            for field in message.ordered:
                within = field.message
                if not field.leads and within is not None:
                    field.leads = any(_leads(each) for each in within.ordered)
                    changed |= field.leads


def _leads(field: Field) -> bool:
    if field.is_map and field.message is not None:
        return any(_leads(each) for each in field.message.ordered)
    within = field.message
    return field.leads or (within is not None and any(each.leads for each in within.ordered))
