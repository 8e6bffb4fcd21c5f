"""The bytes of a segment file: a header, then frames, then zeros. Knows neither files nor records.

    header   magic, 8 bytes | u32 length | u32 crc32c | JSON {first, instance, prev, source}
    frame    u32 length | u32 crc32c of what follows | u64 n | payload, `length` bytes of JSON

Numbers are big-endian. `first` is the number of the first frame, `prev` the base64 hash of the
record before it. Where `n` is not what comes next, the frame is as bad as one whose sum is wrong.

Records that are stored together or not at all stand in frames one after the other in one segment;
the highest bit of `n` is set in each of them but the last. The checksum covers it.
"""

from struct import Struct
from typing import NamedTuple

import google_crc32c
import orjson

from policies.ground.canonical import encode

MAX_PAYLOAD = 256 * 1024
"""An entry is at most 64 KiB, its openings about as much."""

_MAGIC = b"sluice\0\1"
_HEADER = Struct(">8sII")
_FRAME = Struct(">IIQ")
_FRAME_HEAD = Struct(">II").pack
_MORE = 1 << 63
_NUMBER = _MORE - 1
_OPENS = b'{"'  # every payload is a JSON object with members

FRAME = _FRAME.size
"""Bytes that a frame takes beside its payload."""

crc32c = google_crc32c.value


class Header(NamedTuple):
    """What a segment says of itself: whose it is, and where it stands in the chain."""

    source: str
    instance: str
    first: int
    prev: str


class Frame(NamedTuple):
    """A good frame of a buffer: its number, where its payload lies, and whether the next frame
    belongs to it."""

    n: int
    start: int
    end: int
    more: bool = False


class Scan(NamedTuple):
    """What a segment holds. `end` is the offset behind the last good frame, `next` the number that
    follows it, `last` its payload; a torn group does not count. `beyond`, of a frame that is good
    but comes after a bad one, is the highest number, plus one; None where there is none. `clean`
    where all the rest is zeros."""

    end: int
    next: int
    last: bytes | None
    beyond: int | None
    clean: bool


def frame_bytes(n: int, payload: bytes, *, more: bool) -> tuple[bytes, bytes]:
    """A frame in two parts, to be written one after the other. `more` where the next one belongs
    to it."""
    body = (n | _MORE if more else n).to_bytes(8, "big") + payload
    return _FRAME_HEAD(len(payload), crc32c(body)), body


def header_bytes(header: Header) -> bytes:
    body = encode(header._asdict())
    return _HEADER.pack(_MAGIC, len(body), crc32c(body)) + body


def read_header(data: bytes) -> tuple[Header, int] | None:
    """The header and the offset behind it; None where it is none, or a bad one."""
    if len(data) < _HEADER.size:
        return None
    magic, length, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size : _HEADER.size + length]
    if magic != _MAGIC or len(body) != length or crc32c(body) != checksum:
        return None
    if length == 0:  # of a torn write: zeros are the right sum of nothing
        return None
    return Header(**orjson.loads(body)), _HEADER.size + length


def frame_at(data: bytes, offset: int) -> Frame | None:
    """The frame at `offset`; None where there is none, a bad one, or not all of it."""
    start = offset + FRAME
    if start > len(data):
        return None
    length, checksum, n = _FRAME.unpack_from(data, offset)
    end = start + length
    if not 0 < length <= MAX_PAYLOAD or end > len(data):
        return None
    if crc32c(data[offset + 8 : end]) != checksum:
        return None
    return Frame(n & _NUMBER, start, end, n > _NUMBER)


def payloads(data: bytes, offset: int, n: int, most: int) -> list[bytes]:
    """The payloads of the frames from `offset` on, of which the first must be number `n`: `most`,
    or as many as are good and whole. A loop of its own: it runs for every record that ships."""
    found: list[bytes] = []
    size = len(data)
    while len(found) < most and offset + FRAME <= size:
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
    """The frames from `offset` on, of which the first must be number `n`.

    A group whose last frame is missing at the end was torn by a crash between its frames: the
    request was never answered, and its records are stored together or not at all, so what there is
    of the group is cut like any torn write. Where good frames follow a bad one, that is damage and
    not a torn write: the group was once whole, and may have been answered, so every good frame
    before the bad one is kept and what lies behind is declared as lost.
    """
    first = n
    whole, last = offset, None
    group: list[Frame] = []
    while (frame := frame_at(data, offset)) is not None and frame.n == n:
        group.append(frame)
        offset, n = frame.end, n + 1
        if not frame.more:
            whole, last, group = offset, frame, []
    clean = data[whole:] == bytes(len(data) - whole)
    beyond = None if clean else _beyond(data, offset, n)
    if beyond is not None and group:
        whole, last = offset, group[-1]
    payload = None if last is None else data[last.start : last.end]
    return Scan(whole, first if last is None else last.n + 1, payload, beyond, clean)


def _beyond(data: bytes, offset: int, n: int) -> int | None:
    """Frames are looked for wherever a payload may begin: the bad one's length can't be trusted."""
    beyond: int | None = None
    at = data.find(_OPENS, offset)
    while at != -1:
        frame = frame_at(data, at - FRAME) if at - FRAME >= offset else None
        if frame is not None and frame.n >= n:
            beyond = max(beyond or 0, frame.n + 1)
        at = data.find(_OPENS, at + 1 if frame is None else frame.end)
    return beyond
