"""Protocol buffers' encoding: takes a message apart into its fields, and puts fields together
(protobuf.dev, "Encoding"). Knows no message.

Stricter than protocol buffers where two readers could see two messages: a field that may stand once
may not stand twice. Fields that the caller does not ask for are skipped unread.
"""

from collections.abc import Mapping

from policies.ground.errors import Malformed

VARINT = 0
BYTES = 2

Value = int | bytes
Fields = dict[int, list[Value]]

# An attacker must not keep the event loop busy with millions of empty fields. Envoy takes 100
# headers unless told otherwise.
_MAX_FIELDS = 2048
_FIXED = {1: 8, 5: 4}
_ENTRY = {1: BYTES, 2: BYTES}
_FIRST, _SECOND = 1 << 3 | BYTES, 2 << 3 | BYTES
"""The tags of an entry's key and value."""


def read(message: bytes, wanted: Mapping[int, int]) -> Fields:
    """Return the values of the fields in `wanted`, which maps a field's number to its wire type, in
    the order of the message. Raises `Malformed`."""
    found: Fields = {}
    at, end, left = 0, len(message), _MAX_FIELDS
    while at < end:
        left -= 1
        if left < 0:
            raise Malformed(f"a message has more than {_MAX_FIELDS} fields")
        tag = message[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(message, at - 1)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise Malformed("a message has a field without a number")
        if kind == BYTES:
            length = message[at] if at < end else 0x80
            at += 1
            if length >= 0x80:
                length, at = _varint(message, at - 1)
            start, at = at, at + length
            if at > end:
                raise Malformed("a field is longer than its message")
            value: Value = message[start:at] if number in wanted else b""
        elif kind == VARINT:
            value, at = _varint(message, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
            value = 0
            if at > end:
                raise Malformed("a field is longer than its message")
        else:
            raise Malformed(f"a field has the wire type {kind}")
        if number in wanted:
            if wanted[number] != kind:
                raise Malformed(f"field {number} has the wire type {kind}")
            found.setdefault(number, []).append(value)
    return found


def pair(entry: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value of a map's entry. Raises `Malformed`."""
    # Most entries are two short fields, the key first; a header or two is longer.
    if len(entry) >= 4 and entry[0] == _FIRST and entry[1] < 0x80:
        at = 2 + entry[1]
        left = len(entry) - at - 2
        if 0 <= left < 0x80 and entry[at] == _SECOND and entry[at + 1] == left:
            return entry[2:at], entry[at + 2 :]
    fields = read(entry, _ENTRY)
    return data(fields, 1), data(fields, 2)


def single(fields: Fields, number: int) -> Value | None:
    """Return the value of a field that may stand once, None if it is absent. Raises `Malformed`."""
    values = fields.get(number)
    if values is None:
        return None
    if len(values) > 1:
        raise Malformed(f"field {number} stands twice")
    return values[0]


def data(fields: Fields, number: int) -> bytes:
    """Return the value of a field of bytes that may occur once; empty if it is absent, which means
    the same. Raises `Malformed`."""
    value = single(fields, number)
    return value if isinstance(value, bytes) else b""


def text(fields: Fields, number: int) -> str:
    """Like `data`, as text."""
    try:
        return data(fields, number).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed(f"field {number} is not UTF-8") from None


def signed(value: int) -> int:
    """Return the int64 whose varint this is: a negative one is sent as its two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field of bytes, of text or of a message."""
    length = len(value)
    if number < 16 and length < 0x80:  # most are
        return b"%c%c%b" % (number << 3 | BYTES, length, value)
    return b"%b%b%b" % (_encoded(number << 3 | BYTES), _encoded(length), value)


def varint_field(number: int, value: int) -> bytes:
    """Encode a field of a whole number that is not negative, or of an enumeration."""
    return _encoded(number << 3 | VARINT) + _encoded(value)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Read the number at `at`, and return it with the offset after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise Malformed("a message ends in the middle of a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise Malformed("a number has more than 64 bits")
            return value, at
    raise Malformed("a number has more than 64 bits")


def _encoded(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
