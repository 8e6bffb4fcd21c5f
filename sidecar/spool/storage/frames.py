"""Defines the bytes of a segment file: a header, then frames, then zeros. Knows neither files nor
records.

    header   magic, 8 bytes | u32 length | u32 crc32c | JSON {first, instance, prev, source}
    frame    u32 length | u32 crc32c of the rest | u64 n | payload, `length` bytes of JSON

Numbers are big-endian. `first` is the number of the first frame, `prev` the base64 hash of the
record before it. A frame whose `n` is not the next number is as bad as one whose checksum is wrong.

Records that are stored together or not at all are a group: consecutive frames in one segment. The
highest bit of `n` is set in each frame of a group but the last; the checksum covers it.
"""

from struct import Struct
from typing import NamedTuple

import google_crc32c
import orjson

from policies.ground.canonical import encode

MAX_PAYLOAD = 256 * 1024
"""The largest payload of a frame, in bytes. An entry of the log has at most 64 KiB, and its
openings about as many."""

_MAGIC = b"sluice\0\1"
_HEADER = Struct(">8sII")
_FRAME = Struct(">IIQ")
_FRAME_HEAD = Struct(">II").pack
# Numbers start at 0 and never get near the highest bit, so it is free for a flag.
_MORE = 1 << 63
_NUMBER = _MORE - 1
_OPENS = b'{"'  # every payload is a JSON object with members

FRAME = _FRAME.size
"""The bytes of a frame besides its payload."""

crc32c = google_crc32c.value


class Header(NamedTuple):
    """The header of a segment: the instance that the segment belongs to, and its place in the
    chain."""

    source: str
    instance: str
    first: int
    prev: str


class Frame(NamedTuple):
    """A valid frame in a buffer: its number, the offsets of its payload, and whether the next frame
    belongs to the same group."""

    n: int
    start: int
    end: int
    more: bool = False


class Scan(NamedTuple):
    """The result of scanning one segment. `end` is the offset after the last good frame, `next` the
    number after that frame's, and `last` its payload; a group whose last frame is missing does not
    count. `beyond` is one more than the highest number of a good frame after a bad one; None if
    there is no such frame. `clean`: everything after `end` is zeros."""

    end: int
    next: int
    last: bytes | None
    beyond: int | None
    clean: bool


def frame_bytes(n: int, payload: bytes, *, more: bool) -> tuple[bytes, bytes]:
    """Build a frame in two parts, to be written one after the other. `more` means that the next
    frame belongs to the same group."""
    body = (n | _MORE if more else n).to_bytes(8, "big") + payload
    return _FRAME_HEAD(len(payload), crc32c(body)), body


def header_bytes(header: Header) -> bytes:
    body = encode(header._asdict())
    return _HEADER.pack(_MAGIC, len(body), crc32c(body)) + body


def read_header(data: bytes) -> tuple[Header, int] | None:
    """Return the header and the offset after it; None if the header is missing or bad."""
    if len(data) < _HEADER.size:
        return None
    magic, length, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size : _HEADER.size + length]
    # Without a length it is a torn write: the checksum of nothing is zero.
    if magic != _MAGIC or not len(body) == length > 0 or crc32c(body) != checksum:
        return None
    return Header(**orjson.loads(body)), _HEADER.size + length


def frame_at(data: bytes, offset: int) -> Frame | None:
    """Return the frame at `offset`; None if it is missing, bad or incomplete."""
    start = offset + FRAME
    if start > len(data):
        return None
    length, checksum, n = _FRAME.unpack_from(data, offset)
    end = start + length
    # Check the length first: an impossible one spares the checksum.
    if not 0 < length <= MAX_PAYLOAD or end > len(data):
        return None
    if crc32c(data[offset + 8 : end]) != checksum:
        return None
    return Frame(n & _NUMBER, start, end, n > _NUMBER)


def payloads(data: bytes, offset: int, n: int, limit: int) -> list[bytes]:
    """Return the payloads of the frames from `offset` on, at most `limit`. The first frame must
    have the number `n`. Stops at a bad or incomplete frame."""
    # Duplicates `frame_at` for speed: this runs for every record that ships.
    found: list[bytes] = []
    size = len(data)
    while len(found) < limit and offset + FRAME <= size:
        length, checksum, number = _FRAME.unpack_from(data, offset)
        end = offset + FRAME + length
        if number & _NUMBER != n or end > size or not 0 < length <= MAX_PAYLOAD:
            break
        if crc32c(data[offset + 8 : end]) != checksum:
            break
        found.append(data[offset + FRAME : end])
        offset, n = end, n + 1
    return found


def scan(data: bytes, offset: int, n: int) -> Scan:
    """Scan the frames from `offset` on, where the first must have the number `n`."""
    first = n
    whole, last = offset, None
    group: list[Frame] = []
    while (frame := frame_at(data, offset)) is not None and frame.n == n:
        group.append(frame)
        offset, n = frame.end, n + 1
        # A group without its last frame was torn by a crash. Its request was never answered, so
        # the whole group is cut off like any torn write.
        if not frame.more:
            whole, last, group = offset, frame, []
    clean = data[whole:] == bytes(len(data) - whole)
    beyond = None if clean else _highest_beyond(data, offset, n)
    # Good frames after a bad one: damage, not a torn write. The group was once whole and may have
    # been answered, so its good frames are kept, and what follows is declared lost.
    if beyond is not None and group:
        whole, last = offset, group[-1]
    payload = None if last is None else data[last.start : last.end]
    return Scan(whole, first if last is None else last.n + 1, payload, beyond, clean)


def _highest_beyond(data: bytes, offset: int, n: int) -> int | None:
    """Return one more than the highest number of a good frame after `offset`; None if there is no
    such frame."""
    # Search wherever a payload may begin: the length in a bad frame can't be trusted to lead to the
    # next frame.
    beyond: int | None = None
    at = data.find(_OPENS, offset)
    while at != -1:
        frame = frame_at(data, at - FRAME) if at - FRAME >= offset else None
        if frame is not None and frame.n >= n:
            beyond = max(beyond or 0, frame.n + 1)
        at = data.find(_OPENS, at + 1 if frame is None else frame.end)
    return beyond
