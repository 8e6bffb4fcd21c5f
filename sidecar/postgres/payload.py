"""Reads and writes the fields of a payload: numbers, texts that end in NUL, values with a length.

A field that is cut off, and bytes behind the last field, are faults: what one program skips,
another may read.
"""

import struct
from typing import NoReturn

from sidecar.postgres.frames import MessageFault

_INT16, _INT32 = struct.Struct("!H"), struct.Struct("!I")
NULL = 0xFFFFFFFF
"""The length that stands for a value that is NULL."""


class PayloadReader:
    """Reads the fields of one payload in order. `name` is the message's, for errors. Every method
    raises `MessageFault`."""

    __slots__ = ("_at", "_data", "_name")

    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._data = data
        self._at = 0

    def int16(self) -> int:
        """Read an unsigned number of two bytes."""
        return int.from_bytes(self.take(2), "big")

    def int32(self) -> int:
        """Read an unsigned number of four bytes."""
        return int.from_bytes(self.take(4), "big")

    def byte(self) -> bytes:
        return self.take(1)

    def take(self, count: int) -> bytes:
        """Read so many bytes."""
        end = self._at + count
        if end > len(self._data):
            self.fault("is cut off")
        data = self._data[self._at : end]
        self._at = end
        return data

    def text(self) -> bytes:
        """Read the bytes up to a NUL, which is dropped."""
        end = self._data.find(0, self._at)
        if end < 0:
            self.fault("has a text that doesn't end")
        data = self._data[self._at : end]
        self._at = end + 1
        return data

    def value(self) -> bytes | None:
        """Read a length and as many bytes; None for NULL."""
        length = self.int32()
        return None if length == NULL else self.take(length)

    def count(self, most: int, what: str) -> int:
        """Read the number of fields that follow, at most `most`."""
        number = self.int16()
        if number > most:
            self.fault(f"has {number:,} {what}, over the limit of {most:,}")
        return number

    def rest(self) -> bytes:
        """Read all bytes that are left."""
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._at != len(self._data):
            self.fault(f"has {len(self._data) - self._at:,} bytes behind its last field")

    @property
    def left(self) -> int:
        """The number of bytes that were not read yet."""
        return len(self._data) - self._at

    def fault(self, what: str) -> NoReturn:
        raise MessageFault(f"a message {self._name} {what}")


def message(kind: bytes, *parts: bytes) -> bytes:
    """Return the message of a kind, which is empty in the startup phase, with a payload."""
    payload = b"".join(parts)
    return kind + _INT32.pack(4 + len(payload)) + payload


def int16(number: int) -> bytes:
    return _INT16.pack(number)


def int32(number: int) -> bytes:
    return _INT32.pack(number)


def text(data: bytes) -> bytes:
    """Return a text with the NUL that ends it. Raises `ValueError` for one that has a NUL
    inside, where a reader would take it to end."""
    if 0 in data:
        raise ValueError("a text for PostgreSQL may have no NUL inside")
    return data + b"\0"


def value(data: bytes | None) -> bytes:
    return int32(NULL) if data is None else int32(len(data)) + data
