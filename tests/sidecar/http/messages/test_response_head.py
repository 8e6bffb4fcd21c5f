"""Which header fields of a response are forwarded, and that its head is read in one way only."""

import random
import tracemalloc

import httptools
import pytest

from sidecar.http.messages import response_parser
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.messages.response_parser import BadResponse, ResponseMessage, read_head

LIMITS = HeadLimits(line=1000, field=1000, fields=20)


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, *lines]).encode()


def forwarded(*lines: str) -> list[str]:
    message = read_head(head(*lines), LIMITS)
    return message.lines.decode().split("\r\n")[:-1]


@pytest.mark.parametrize(
    "line",
    [
        "Connection: close",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authenticate: Basic",
        "TE: trailers",
        "Trailer: Expires",
        "Transfer-Encoding: chunked",
        "Upgrade: h2c",
        "Content-Length: 3",
        "Alt-Svc: h3=':443'",
        "X-Sluice-Event-Id: forged",
        "x_sluice-decision: ALLOW",
    ],
)
def test_a_field_of_one_hop_or_of_the_sidecar_is_not_forwarded(line: str) -> None:
    for _ in ("read", "remembered"):
        assert forwarded("Server: x", line, "X-A: b") == ["Server: x", "X-A: b"]
        assert forwarded(line.upper().replace("CHUNKED", "chunked")) == []


def test_the_others_keep_their_order_case_duplicates_and_values() -> None:
    lines = ["date: now", "Set-Cookie: a", "set-cookie: b", "X-Odd: two  spaces", "Server: "]
    for _ in ("read", "remembered"):
        assert forwarded(*lines) == lines
        assert forwarded("X-Odd:\t two  spaces \t", "Server:") == lines[-2:]


def test_fields_named_by_connection_are_not_forwarded_unless_end_to_end() -> None:
    lines = ["Connection: X-Hop, close, content-type", "Content-Type: x", "X-HOP: 1", "Close: 1"]
    for _ in ("read", "remembered"):
        assert forwarded(*lines, "Connection:", "connection: y", "Y: 1") == [lines[1], lines[3]]


@pytest.mark.parametrize(
    ("status", "lines", "closes"),
    [
        ("HTTP/1.1 200 OK", ("Content-Length: 0",), False),
        ("HTTP/1.1 200 OK", ("Content-Length: 0", "Connection: keep-alive, CLOSE"), True),
        ("HTTP/1.1 200 OK", ("Transfer-Encoding: Chunked",), False),
        ("HTTP/1.1 200 OK", (), True),
        ("HTTP/1.1 204 OK", (), False),
        ("HTTP/1.0 200 OK", ("Content-Length: 0",), True),
        ("HTTP/1.0 200 OK", ("Content-Length: 0", "Connection: Keep-Alive"), False),
        ("HTTP/1.0 200 OK", ("Transfer-Encoding: chunked", "Connection: keep-alive"), True),
        ("HTTP/1.1 101 X", ("Upgrade: websocket",), True),
    ],
)
def test_a_connection_closes_if_the_response_demands_it_or_has_no_other_end(
    status: str, lines: tuple[str, ...], closes: bool
) -> None:
    assert read_head(head(*lines, status=status), LIMITS).should_close is closes


def test_response_heads_fill_little_memory_and_leave_no_secret() -> None:
    assert _held_after(3000) < 700_000, "3,000 short lines would take more"
    _check_what_stays()


@pytest.mark.deep(stands_in="test_response_heads_fill_little_memory_and_leave_no_secret")
def test_many_response_heads_fill_no_memory_and_leave_no_secret() -> None:
    assert _held_after(20_000) < 1 << 20, "20,000 short lines would take more"
    _check_what_stays()


def _held_after(heads: int) -> int:
    """The bytes that so many heads leave in memory."""
    tracemalloc.start()
    try:
        for number in range(heads):
            lines = f"Date: {number}", f"Server: {number:0500}", f"Set-Cookie: {number}", "X-Key: 1"
            read_head(head(*lines), LIMITS)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _check_what_stays() -> None:
    known = b"".join(
        next(value for name, value in vars(response_parser).items() if name == "_known")
    )
    assert b"Date" in known
    assert b"Cookie" not in known
    assert b"Key" not in known


class _Oracle:
    """What llhttp makes of a head, through httptools."""

    def __init__(self, data: bytes) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.reason = b""
        self.refused = False
        self.keeps_alive = False
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(data + b"\r\n\r\n")
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            self.refused = True
        self.status = self._parser.get_status_code()
        self.version = self._parser.get_http_version()

    def on_status(self, status: bytes) -> None:
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.keeps_alive = self._parser.should_keep_alive()


_HEADS = [
    head("Content-Type: x", "Content-Length: 12", "X-A: b", "X-A:  c d "),
    head("Transfer-Encoding: chunked", "Set-Cookie: a=b; c", "Vary:"),
    head("Connection: close, x-b", "X-B: 1", "Content-Length: 0", status="HTTP/1.0 404 Not Found"),
    head("Upgrade: h2c", "Connection: upgrade, keep-alive", status="HTTP/1.1 304"),
]
_BYTES = b'\x00\t\n\r "(),/:;<=>?@[\\]{}\x7f\x80\xff019AZaz-_.!#'
_PIECES = [b"\r\n", b"\r\n ", b"\r", b"\n", b" :", b"::", b"Content-Length: 1\r\n", b"chunked"]


def _mutated(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(_HEADS))
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(3)
        if kind == 0:
            data[at:at] = chance.choice(_PIECES)
        elif kind == 1:
            data[at : at + 1] = bytes([chance.choice(_BYTES)])
        else:
            del data[at : at + chance.randint(1, 4)]
    return bytes(data).partition(b"\r\n\r\n")[0]


def _ours(data: bytes) -> ResponseMessage | None:
    try:
        return read_head(data, LIMITS)
    except BadResponse:
        return None


def test_each_piece_in_each_place_is_read_like_llhttp_reads_it() -> None:
    heads = [
        (data[:at] + piece + data[at:]).partition(b"\r\n\r\n")[0]
        for data in _HEADS[:2]
        for piece in (*_PIECES, b"\0", b"\x80", b" ")
        for at in range(0, len(data), 2)
    ]
    assert _read_alike(heads) > 100


@pytest.mark.deep(stands_in="test_each_piece_in_each_place_is_read_like_llhttp_reads_it")
def test_random_heads_are_read_like_llhttp_reads_them() -> None:
    """Random heads of a fixed seed."""
    chance = random.Random(7)
    assert _read_alike([*_HEADS, *(_mutated(chance) for _ in range(20_000))]) > 4000


def _read_alike(heads: list[bytes]) -> int:
    """How many of the heads are read. What llhttp refuses is refused here."""
    read = 0
    for data in heads:
        found, oracle = _ours(data), _Oracle(data)
        if found is None:
            continue
        read += 1
        assert not oracle.refused, data
        assert (found.status, found.reason) == (oracle.status, oracle.reason), data
        assert oracle.version in ("1.0", "1.1"), data
        assert found.should_close or oracle.keeps_alive, data
        remaining = iter(oracle.fields)
        assert all(field in remaining for field in found.fields), data
    return read
