"""The parts of protocol buffers' encoding: varints and fields (protobuf.dev, "Encoding"). Pure."""

from policies.ground.errors import Malformed

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types. Groups (3 and 4) are obsolete, and refused."""


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the varint at offset `at`, before `end`, and return it with the offset after it. Raises
    `Malformed` if it has more than 64 bits, or more bytes than its value needs."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise Malformed("a message ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise Malformed("a number has more than 64 bits")
            if not byte and shift:
                raise Malformed("a number is written with more bytes than it needs")
            return value, at
    raise Malformed("a number has more than 64 bits")


def varint(value: int) -> bytes:
    """Encode a whole number, which must not be negative."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(number: int, value: int) -> bytes:
    """Encode a field that holds a whole number, which must not be negative, or a value of an
    enumeration."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field that holds bytes, text or a message."""
    length = len(value)
    if number < 16 and length < 0x80:  # most are
        return b"%c%c%b" % (number << 3 | BYTES, length, value)
    return b"%b%b%b" % (varint(number << 3 | BYTES), varint(length), value)
