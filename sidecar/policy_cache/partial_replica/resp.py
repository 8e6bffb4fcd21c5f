"""The protocol of Redis, version 2: encodes commands, and parses replies as they arrive. Opens no
connection.

https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from collections.abc import Iterable
from typing import Any

Part = str | bytes | int

MAX_REPLY = 256 * 1024 * 1024
"""In bytes. A page of documents has some megabytes."""
MAX_DEPTH = 8
"""Of lists in lists. A stream's entries have four."""
_MAX_LINE = 64 * 1024


class RedisError(Exception):
    """Redis answered with an error, or what it sent is not an answer"""


class ReplyError(RedisError):
    """the error that Redis answered with; its first word is a code"""


def encode(parts: Iterable[Part]) -> bytes:
    """A command and its arguments."""
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    pieces = [b"*%d\r\n" % len(texts)]
    for text in texts:
        pieces.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(pieces)


class ReplyParser:
    """Parses one reply at a time: None for absent values, `int`, `bytes`, lists of these, and a
    `ReplyError`, which may stand in a list too."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._open: list[tuple[list[Any], int]] = []
        """The lists that are not complete, with their lengths, from the outside to the inside."""

    def feed(self, data: bytes) -> tuple[Any] | None:
        """The reply, as the only item of a tuple; None while more of it has to come. Raises
        `RedisError` if the data are not one reply."""
        self._buffer += data
        if len(self._buffer) > MAX_REPLY:
            raise RedisError(f"the answer is longer than {MAX_REPLY:,} bytes")
        while (value := self._value()) is not None:
            if (whole := self._completed(value[0])) is not None:
                if self._at != len(self._buffer):
                    raise RedisError("there is more than one answer to one command")
                self._buffer.clear()
                self._at = 0
                return whole
        return None

    def _value(self) -> tuple[Any] | None:
        """The next value, or the list that begins there; None if it is not there yet."""
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > _MAX_LINE:
                raise RedisError("a line of the answer does not end")
            return None
        line = bytes(self._buffer[self._at : end])
        kind, line = line[:1], line[1:]
        after = end + 2
        if kind == b"$" and (size := _number(line)) >= 0:
            if len(self._buffer) < after + size + 2:
                return None
            value: Any = bytes(self._buffer[after : after + size])
            after += size + 2
            if self._buffer[after - 2 : after] != b"\r\n":
                raise RedisError("a value of the answer is longer than it says")
        elif kind == b"*" and (size := _number(line)) >= 0:
            if len(self._open) == MAX_DEPTH:
                raise RedisError("the answer has too many lists in lists")
            value = []
            self._open.append((value, size))
        elif kind in (b"$", b"*"):
            value = None
        elif kind == b":":
            value = _number(line)
        elif kind == b"+":
            value = line
        elif kind == b"-":
            value = ReplyError(line.decode(errors="replace"))
        else:
            raise RedisError("the answer is not of Redis")
        self._at = after
        return (value,)

    def _completed(self, value: Any) -> tuple[Any] | None:
        """Put the value into its list. Returns the outermost one once it is complete."""
        # A list that has just begun is the last of those that are open, and in none of them yet.
        begun = bool(self._open) and value is self._open[-1][0]
        if begun and self._open[-1][1] > 0:
            return None
        if begun:
            self._open.pop()
        while self._open:
            items, size = self._open[-1]
            items.append(value)
            if len(items) < size:
                return None
            self._open.pop()
            value = items
        return (value,)


def _number(line: bytes) -> int:
    try:
        return int(line[:20])
    except ValueError:
        raise RedisError("a number in the answer can't be read") from None
