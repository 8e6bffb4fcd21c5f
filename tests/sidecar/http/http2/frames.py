"""Frames of HTTP/2 made by hand, so that a test can send what no library would (RFC 9113)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sidecar.http.http2.session import PREFACE

(
    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE,
    CONTINUATION,
) = range(10)  # fmt: skip
ALTSVC, ORIGIN, PRIORITY_UPDATE, UNKNOWN = 10, 12, 16, 0x42

END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITISED = 4, 8, 32

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = range(1, 6)

GET = ((b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"kb.test"), (b":path", b"/a"))
POST = ((b":method", b"POST"), *GET[1:])

Fields = Iterable[tuple[bytes, bytes]]


class Frame(NamedTuple):
    """One frame that arrived."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of a RST_STREAM or a GOAWAY."""
        at = 4 if self.kind == GOAWAY else 0
        return int.from_bytes(self.payload[at : at + 4], "big")

    @property
    def number(self) -> int:
        """The increment of a WINDOW_UPDATE, or the last stream of a GOAWAY."""
        return int.from_bytes(self.payload[:4], "big") & 0x7FFFFFFF


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return b"%b%b%b%b%b" % (
        len(payload).to_bytes(3, "big"),
        bytes((kind,)),
        bytes((flags,)),
        stream.to_bytes(4, "big"),
        payload,
    )


def settings(values: dict[int, int] | None = None, flags: int = 0) -> bytes:
    pairs = (values or {}).items()
    payload = b"".join(key.to_bytes(2, "big") + each.to_bytes(4, "big") for key, each in pairs)
    return frame(SETTINGS, payload=payload, flags=flags)


def begin(values: dict[int, int] | None = None) -> bytes:
    """The first bytes of a client: the preface, its settings, and the answer to the server's."""
    return PREFACE + settings(values) + settings(flags=ACK)


def fields(each: Fields) -> bytes:
    """Fields as literals of HPACK that are never indexed (RFC 7541 section 6.2.3)."""
    return b"".join(b"\x10" + _string(name) + _string(value) for name, value in each)


def headers(
    stream: int, head: Fields = GET, *, end: bool = True, flags: int = END_HEADERS
) -> bytes:
    return frame(HEADERS, stream, fields(head), flags | (END_STREAM if end else 0))


def data(stream: int, payload: bytes = b"", *, end: bool = False, pad: int | None = None) -> bytes:
    flags = END_STREAM if end else 0
    if pad is not None:
        payload = bytes((pad,)) + payload + bytes(pad)
        flags |= PADDED
    return frame(DATA, stream, payload, flags)


def reset(stream: int, code: int = 8) -> bytes:
    return frame(RST_STREAM, stream, code.to_bytes(4, "big"))


def update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, stream, increment.to_bytes(4, "big"))


def ping(flags: int = 0) -> bytes:
    return frame(PING, payload=bytes(8), flags=flags)


def goaway(last: int = 0, code: int = 0) -> bytes:
    return frame(GOAWAY, payload=last.to_bytes(4, "big") + code.to_bytes(4, "big"))


def read(data: bytes) -> Iterator[Frame]:
    """The whole frames in what a server sent."""
    at = 0
    while at + 9 <= len(data):
        length = int.from_bytes(data[at : at + 3], "big")
        if at + 9 + length > len(data):
            return
        number = int.from_bytes(data[at + 5 : at + 9], "big")
        yield Frame(data[at + 3], data[at + 4], number, data[at + 9 : at + 9 + length])
        at += 9 + length


def _string(text: bytes) -> bytes:
    """A string of HPACK without Huffman coding."""
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    begun, rest = bytearray((127,)), length - 127
    while rest >= 128:
        begun.append(rest % 128 | 128)
        rest //= 128
    begun.append(rest)
    return bytes(begun) + text
