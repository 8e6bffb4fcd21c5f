"""Cuts what arrives on a connection into messages: a byte that names the kind, a length, a payload.

The sender of a length is not trusted. It counts itself, so it is at least 4; it is read as unsigned
and compared with a limit before anything is held for it (CVE-2024-27304 was a length that
overflowed: the rest of the payload was then read as messages of its own). A kind that the direction
doesn't have is refused with its first byte.

Pure: knows no connection, and nothing of payloads.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

_HEAD = 5
_LENGTH = 4

RUN_BYTES = 65_536
"""The bytes after which a run of DataRow messages ends."""

SHORT_BYTES = 10_000
"""The longest message of a kind that carries only names and numbers, as PostgreSQL has it."""
SHORT_ANSWER_BYTES = 30_000
"""The same for what a server sends, as libpq has it."""

AGENT_BYTES = 16 * 1024 * 1024
"""The longest message from an agent."""


class Limits(NamedTuple):
    """What may arrive in one direction, at one time."""

    most: Mapping[int, int]
    """The most bytes of a message, its length field included, for each kind that may arrive."""
    runs: bool = False
    """True if kind `D` is DataRow, of which one frame may hold many. From an agent, it is
    Describe."""


class ProtocolFault(Exception):
    """the bytes that arrived break PostgreSQL's protocol"""

    sqlstate = "08P01"


class MessageFault(ProtocolFault):
    """the payload of one message is malformed; where the next one begins is known all the same"""


class Frame(NamedTuple):
    """A message as it arrived. DataRow messages that arrived together are one frame, a run."""

    kind: bytes
    """The byte that names the kind of message."""
    raw: bytes
    """All bytes of the message, or of each message of the run."""
    messages: int = 1
    """The number of messages; more than 1 only for DataRow."""

    @property
    def payload(self) -> bytes:
        """The bytes behind the length, of a frame of one message."""
        return self.raw[_HEAD:]


def from_agent(limit: int = AGENT_BYTES) -> Limits:
    """Return the limits on what an agent sends once it is let in."""
    return Limits(_table(b"BFPQd", limit) | _table(b"CDEHSXcf", SHORT_BYTES))


def from_stranger() -> Limits:
    """Return the limits on what an agent sends before that: a password."""
    return Limits(_table(b"p", SHORT_BYTES))


def from_server(limit: int) -> Limits:
    """Return the limits on what a server sends after the login."""
    short = _table(b"123CGHISWZcnst", SHORT_ANSWER_BYTES)
    return Limits(_table(b"ADENTVd", limit) | short, runs=True)


def from_server_at_login() -> Limits:
    """Return the limits on what a server sends in the course of a login."""
    return Limits(_table(b"EKNRSZv", SHORT_ANSWER_BYTES))


def _table(kinds: bytes, limit: int) -> dict[int, int]:
    return dict.fromkeys(kinds, limit)


class FrameReader:
    """Gathers bytes, and hands out frames one by one. `limits` may be replaced at any time: before
    a login, less is accepted than behind it."""

    __slots__ = ("_held", "_need", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held = bytearray()
        self._need = 1
        """The bytes that have to be held before it is worth looking again."""

    @property
    def held(self) -> int:
        """The number of bytes that no frame was made of yet."""
        return len(self._held)

    @property
    def starved(self) -> bool:
        """True if the bytes held are known to make no whole message."""
        return len(self._held) < self._need

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self._held += data

    def first(self) -> int | None:
        """Return the first byte held without taking it; None if there is none."""
        return self._held[0] if self._held else None

    def take(self) -> Frame | None:
        """Return the next message, or run of DataRow messages; None until it is whole. Raises
        `ProtocolFault`, then and at each further call."""
        held = self._held
        if len(held) < self._need:
            return None
        kind = held[0]
        size = self._size()
        if size == 0:
            return None
        count = 1
        if kind == _DATA_ROW and self.limits.runs:
            size, count = self._run(size)
        raw = bytes(held[:size])
        del held[:size]
        self._need = 1
        return Frame(_KINDS[kind], raw, count)

    def take_startup(self, most: int) -> bytes | None:
        """Return the payload of the next message of the startup phase, which has no kind; None
        until it is whole. `most` limits its bytes. Raises `ProtocolFault`."""
        held = self._held
        if len(held) < _LENGTH:
            self._need = _LENGTH
            return None
        length = int.from_bytes(held[:_LENGTH], "big")
        if not 2 * _LENGTH <= length <= most:
            raise ProtocolFault(f"a startup message can't have a length of {length:,}")
        if len(held) < length:
            self._need = length
            return None
        payload = bytes(held[_LENGTH:length])
        del held[:length]
        self._need = 1
        return payload

    def take_all(self) -> bytes:
        """Return all bytes held, for another protocol."""
        data = bytes(self._held)
        self._held.clear()
        self._need = 1
        return data

    def take_byte(self) -> bytes | None:
        """Return the next byte, such as the answer to an SSLRequest; None if there is none."""
        if not self._held:
            return None
        data = bytes(self._held[:1])
        del self._held[:1]
        return data

    def _size(self) -> int:
        """Return the bytes of the first message, or 0 if it isn't whole."""
        held = self._held
        limit = self.limits.most.get(held[0])
        if limit is None:
            raise ProtocolFault(f"a message of kind 0x{held[0]:02x} can't stand here")
        if len(held) < _HEAD:
            self._need = _HEAD
            return 0
        length: int
        kind, length = _KIND_AND_LENGTH.unpack_from(held)
        if length < _LENGTH:
            raise ProtocolFault(f"the length of a message is {length}, less than its own 4 bytes")
        if length > limit:
            raise ProtocolFault(
                f"a message of kind `{chr(kind)}` has {length:,} bytes, over the limit of {limit:,}"
            )
        if len(held) < 1 + length:
            self._need = 1 + length
            return 0
        return 1 + length

    def _run(self, size: int) -> tuple[int, int]:
        """Return the bytes and the number of the DataRow messages that are whole, of which the
        first has `size` bytes."""
        held, count, end = self._held, 1, len(self._held)
        limit = self.limits.most[_DATA_ROW]
        while size < RUN_BYTES and size + _HEAD <= end:
            kind, length = _KIND_AND_LENGTH.unpack_from(held, size)
            # A message with another length is refused when its turn comes.
            if kind != _DATA_ROW or not _LENGTH <= length <= limit or size + 1 + length > end:
                break
            size += 1 + length
            count += 1
        return size, count


_KIND_AND_LENGTH = struct.Struct("!BI")
_KINDS = [bytes([each]) for each in range(256)]
_DATA_ROW = ord("D")
