"""Decodes messages of protocol buffers strictly, and encodes them again. What two readers could
understand differently is refused with `Malformed`: a field that the schema doesn't have, or has
with another wire type; a singular field or a `oneof` twice; equal keys of a map; numbers out of
range or longer than needed; text that isn't UTF-8. Pure.

Decoded values are a dict by field name. A repeated field is a list, a map a dict, an enumeration an
int. Vectors (`float*`, `double*`) and `raw` fields stay bytes, undecoded. A field that is absent in
meaning is absent in the dict: a scalar without presence whose value is its type's default, an empty
list or map.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.grpc.schema import FIXED, UNREAD, VARINTS, Field, MessageFields, parse_schema
from sidecar.http.grpc.wire import BYTES, FIXED32, FIXED64, VARINT, read_varint, varint

MAX_FIELDS = 100_000
"""The most fields of one message, those of the messages within and the numbers of lists included.
Each may be an object to create, during which no other task can run."""
MAX_DEPTH = 100
"""The most levels to which messages may be nested: what the servers' own readers allow."""

Values = dict[str, Any]


class Decoded(NamedTuple):
    values: Values
    canonical: bool
    """False if the same values would be encoded as other bytes."""
    fields: int
    """The number of its fields, as `MAX_FIELDS` counts them."""


class Name(NamedTuple):
    """A string that names something to judge, as the schema marks it (`@kind`)."""

    kind: str
    value: str


class Message:
    """One message of a schema."""

    __slots__ = ("fields",)

    def __init__(self, fields: MessageFields) -> None:
        self.fields = fields

    def decode(self, data: bytes) -> Decoded:
        """Decode a whole message. Raises `Malformed`."""
        return _Reader(data).whole(self.fields)

    def encode(self, values: Values) -> bytes:
        """Encode a message: fields by number, numbers of a list packed. Names that the schema
        doesn't have raise `KeyError`."""
        return _encode(self.fields, values)

    def names(self, values: Values) -> Iterator[Name]:
        """Return the marked strings of decoded values, at every depth."""
        return _names(self.fields, values)


class Schema:
    """The messages of a schema's text (`schema.py`), by name."""

    def __init__(self, text: str) -> None:
        self._messages = {name: Message(each) for name, each in parse_schema(text).items()}

    def __getitem__(self, name: str) -> Message:
        return self._messages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._messages)


class _Reader:
    """Reads one message. `canonical` says whether everything read so far was written as `_encode`
    would write it."""

    __slots__ = ("_data", "_joined", "_left", "canonical")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MAX_FIELDS
        self._joined: list[tuple[Values, str]] = []
        self.canonical = True

    def whole(self, fields: MessageFields) -> Decoded:
        values = self.message(fields, 0, len(self._data), 0)
        for holder, name in self._joined:
            holder[name] = bytes(holder[name])
        return Decoded(values, self.canonical, MAX_FIELDS - self._left)

    def message(self, fields: MessageFields, at: int, end: int, depth: int) -> Values:
        if depth > MAX_DEPTH:
            raise Malformed(f"the message is nested more than {MAX_DEPTH} levels deep")
        data, by_tag = self._data, fields.by_tag
        values: Values = {}
        seen = last = 0
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _too_many()
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = read_varint(data, at - 1, end)
            field = by_tag.get(tag)
            if field is None:
                raise _unknown(fields, tag)
            if field.number < last:
                self.canonical = False
            last = field.number
            # Not by `values`, where a default value leaves no trace.
            if seen & field.bit:
                name = field.group or field.name
                raise Malformed(f"`{fields.name}.{name}` stands twice")
            seen |= field.bit
            if tag & 7 == BYTES:
                if at < end and data[at] < 0x80:
                    length, at = data[at], at + 1
                else:
                    length, at = read_varint(data, at, end)
                start, at = at, at + length
                if at > end:
                    raise Malformed(f"`{fields.name}.{field.name}` is longer than its message")
                self._bytes(values, fields, field, start, at, depth)
            else:
                at = self._number(values, fields, field, at, end)
        return values

    def _bytes(
        self, values: Values, fields: MessageFields, field: Field, at: int, end: int, depth: int
    ) -> None:
        name = field.name
        value: Any
        if field.message is not None:
            value = self.message(field.message, at, end, depth + 1)
            if field.is_map:
                self._entry(values, fields, field, value)
                return
        elif field.kind == "string":
            value = _text(self._data[at:end], fields, field)
        elif field.wire == BYTES:
            value = self._data[at:end]
        else:
            self._packed(values, fields, field, at, end)
            return
        if field.repeated:
            values.setdefault(name, []).append(value)
        elif value or field.present:
            values[name] = value
        else:
            self.canonical = False

    def _entry(self, values: Values, fields: MessageFields, field: Field, entry: Values) -> None:
        assert field.message is not None
        key_field, value_field = field.message.ordered
        if len(entry) < 2:
            # An entry without a key or a value has the type's default.
            self.canonical = False
            entry = {"key": _default(key_field), "value": _default(value_field), **entry}
        known = values.setdefault(field.name, {})
        if entry["key"] in known:
            raise Malformed(f"`{fields.name}.{field.name}` has the same key twice")
        known[entry["key"]] = entry["value"]

    def _packed(
        self, values: Values, fields: MessageFields, field: Field, at: int, end: int
    ) -> None:
        """Read the numbers of a list that stand in one field."""
        if at == end or field.name in values:
            self.canonical = False
        if at == end:
            return
        if field.kind in UNREAD:
            if (end - at) % struct.calcsize(FIXED[field.kind]):
                raise Malformed(f"`{fields.name}.{field.name}` ends in the middle of a number")
            self._join(values, field.name, self._data[at:end])
            return
        numbers = values.setdefault(field.name, [])
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _too_many()
            value, at = self._read(fields, field, at, end)
            numbers.append(value)

    def _join(self, values: Values, name: str, part: bytes) -> None:
        """Add a part to a vector. Most have one part; of many, each would copy those before it, so
        they gather in a `bytearray` until the end."""
        if name not in values:
            values[name] = part
            return
        if isinstance(values[name], bytes):
            values[name] = bytearray(values[name])
            self._joined.append((values, name))
        values[name] += part

    def _number(
        self, values: Values, fields: MessageFields, field: Field, at: int, end: int
    ) -> int:
        start = at
        value, at = self._read(fields, field, at, end)
        if field.repeated:
            self.canonical = False  # numbers of a list belong together
            if field.kind in UNREAD:
                self._join(values, field.name, self._data[start:at])
            else:
                values.setdefault(field.name, []).append(value)
        elif field.present or any(self._data[start:at]):
            values[field.name] = value
        else:
            self.canonical = False
        return at

    def _read(self, fields: MessageFields, field: Field, at: int, end: int) -> tuple[Any, int]:
        if field.wire == VARINT:
            number, at = read_varint(self._data, at, end)
            return _varint_value(number, fields, field), at
        code = FIXED[field.kind]
        stop = at + struct.calcsize(code)
        if stop > end:
            raise Malformed(f"`{fields.name}.{field.name}` is longer than its message")
        return struct.unpack_from(code, self._data, at)[0], stop


def _too_many() -> Malformed:
    return Malformed(f"the message has more than {MAX_FIELDS} fields")


def _unknown(fields: MessageFields, tag: int) -> Malformed:
    number, wire = tag >> 3, tag & 7
    for field in fields.ordered:
        if field.number == number:
            return Malformed(f"`{fields.name}.{field.name}` has the wire type {wire}")
    return Malformed(f"`{fields.name}` has the unknown field {number}")


def _text(data: bytes, fields: MessageFields, field: Field) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed(f"`{fields.name}.{field.name}` is not UTF-8") from None


def _varint_value(number: int, fields: MessageFields, field: Field) -> Any:
    # Neither the type `int | bool` nor one expression: compiled, either makes an int of a bool.
    kind = field.kind
    if kind in ("sint32", "sint64"):
        value = number >> 1 ^ -(number & 1)
    elif kind[0] != "u" and number >= 1 << 63:
        value = number - (1 << 64)  # a negative number is sent as its two's complement
    else:
        value = number
    least, most = VARINTS[kind]
    if not least <= value <= most:
        raise Malformed(f"`{fields.name}.{field.name}` is not a number of the type `{kind}`")
    if kind == "bool":
        return bool(value)
    return value


def _default(field: Field) -> Any:
    if field.message is not None:
        return {}
    if field.kind == "string":
        return ""
    if field.wire == BYTES:
        return b""
    defaults: dict[str, Any] = {"bool": False, "float": 0.0, "double": 0.0}
    return defaults.get(field.kind, 0)


# ------------------------------------------------------------------------------------- encoding


def _encode(fields: MessageFields, values: Values) -> bytes:
    left = len(values)
    out: list[bytes] = []
    for field in fields.ordered:
        if field.name in values:
            left -= 1
            _write(out, field, values[field.name])
    if left:
        raise KeyError(min(values.keys() - fields.fields.keys()))
    return b"".join(out)


def _write(out: list[bytes], field: Field, value: Any) -> None:
    if field.is_map:
        assert field.message is not None
        for key, each in value.items():
            _write_bytes(out, field, _encode(field.message, {"key": key, "value": each}))
    elif not field.repeated:
        if field.wire == BYTES:
            _write_bytes(out, field, _content(field, value))
        else:
            out += (field.prefix, _number(field, value))
    elif field.wire == BYTES:
        for each in value:
            _write_bytes(out, field, _content(field, each))
    elif value:
        unread = isinstance(value, bytes)
        _write_bytes(
            out, field, value if unread else b"".join([_number(field, each) for each in value])
        )


def _write_bytes(out: list[bytes], field: Field, content: bytes) -> None:
    out += (field.prefix, varint(len(content)), content)


def _content(field: Field, value: Any) -> bytes:
    if field.message is not None:
        return _encode(field.message, value)
    encoded: bytes = value.encode("utf-8") if field.kind == "string" else value
    return encoded


def _number(field: Field, value: Any) -> bytes:
    if field.wire in (FIXED32, FIXED64):
        return struct.pack(FIXED[field.kind], value)
    number = int(value)
    if field.kind in ("sint32", "sint64"):
        number = number << 1 if number >= 0 else (-number << 1) - 1
    return varint(number & (1 << 64) - 1)


def _names(fields: MessageFields, values: Values) -> Iterator[Name]:
    for field in fields.ordered:
        if not field.leads or field.name not in values:
            continue
        value = values[field.name]
        if field.mark:
            for each in value if field.repeated else (value,):
                yield Name(field.mark, each)
        elif field.is_map:
            assert field.message is not None
            within = field.message.ordered[1].message
            assert within is not None
            for each in value.values():
                yield from _names(within, each)
        else:
            assert field.message is not None
            for each in value if field.repeated else (value,):
                yield from _names(field.message, each)
