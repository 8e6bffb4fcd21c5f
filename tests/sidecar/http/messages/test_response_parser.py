"""Responses are read strictly, to the byte, and alike however they arrive."""

from typing import NamedTuple

import pytest

from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.messages.response_parser import (
    MAX_INTERIM,
    BadResponse,
    ResponseMessage,
    ResponseParser,
)

LIMITS = HeadLimits(line=100, field=100, fields=5)


class Outcome(NamedTuple):
    """What became of the bytes of a response. `body` is None if it broke off."""

    head: tuple[int, bytes, list[tuple[bytes, bytes]], bytes | None, bool]
    body: bytes | None
    complete: bool
    excess: bool


def parse(
    pieces: list[bytes], *, to_head: bool = False, upgrade: bool = False, ended: bool = False
) -> Outcome | None:
    """What a parser makes of the pieces; None if it refuses the head, or has no whole one."""
    parser = ResponseParser(LIMITS, BodyStream)
    parser.expect(to_head=to_head, upgrade=upgrade)
    found: list[ResponseMessage] = []
    try:
        for piece in pieces:
            message = parser.feed(piece)
            if message is not None:
                found.append(message)
    except BadResponse:
        assert not found, "a head that was given away is never refused afterwards"
        return None
    if ended:
        parser.end()
    if not found:
        return None
    [message] = found
    head = message.status, message.reason, message.fields, message.length, message.should_close
    try:
        read = message.body.take()
    except BadResponse:
        return Outcome(head, None, False, False)
    assert message.body.complete is parser.complete
    return Outcome(head, read, parser.complete, parser.excess)


def ok(fields: bytes = b"", rest: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n" + rest


CHUNKED = b"Transfer-Encoding: chunked\r\n"
WELL_FORMED = {
    "length": ok(b"Content-Length: 5\r\n", b"hello"),
    "line breaks in the body": ok(b"Content-Length: 8\r\n", b"\r\n\r\n\r\n\r\n"),
    "a head in the body": ok(b"Content-Length: 19\r\n", ok()),
    "no body": ok(b"Content-Length: 0\r\n"),
    "chunks": ok(CHUNKED, b"3;x=y\r\nabc\r\n2\r\n\r\n\r\n0\r\n\r\n"),
    "no chunk": ok(CHUNKED, b"0\r\n\r\n"),
    "trailers": ok(CHUNKED, b"3\r\nabc\r\n0\r\nX: y\r\nZ:\r\n\r\n"),
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nLink: x\r\n\r\n"
    + ok(b"Content-Length: 2\r\n", b"ok"),
    "other interim": b"HTTP/1.1 199 Soon\r\n\r\n" + ok(b"Content-Length: 2\r\n", b"ok"),
    "204": b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    "304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
    "empty values": ok(b"A:\r\nB: \r\nC:\t x \t\r\nContent-Length: 0\r\n"),
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
    "a reason in Latin-1": b"HTTP/1.1 200 Tr\xe8s bien\r\nContent-Length: 0\r\n\r\n",
    "close": ok(b"Connection: close\r\nContent-Length: 2\r\n", b"ok"),
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "own fields": ok(b"X-Sluice-Event-Id: 1\r\nAlt-Svc: x\r\nContent-Length: 0\r\n"),
    "an offer of HTTP/2": ok(b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n"),
}
REFUSED = {
    "two lengths": ok(b"Content-Length: 2\r\nContent-Length: 2\r\n", b"ok"),
    "a list of lengths": ok(b"Content-Length: 2, 2\r\n", b"ok"),
    "a length with a sign": ok(b"Content-Length: +2\r\n", b"ok"),
    "an empty length": ok(b"Content-Length:\r\n"),
    "a length beyond every number": ok(b"Content-Length: 99999999999999999999\r\n"),
    "length and chunked": ok(b"Content-Length: 2\r\n" + CHUNKED, b"0\r\n\r\n"),
    "chunked and length": ok(CHUNKED + b"Content-Length: 2\r\n", b"0\r\n\r\n"),
    "gzip, chunked": ok(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "gzip": ok(b"Transfer-Encoding: gzip\r\n", b"x"),
    "chunked twice": ok(CHUNKED * 2, b"0\r\n\r\n"),
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "bare CR": ok(b"X: a\rY: b\r\nContent-Length: 0\r\n"),
    "a folded field": ok(b"X: a\r\n b\r\nContent-Length: 0\r\n"),
    "a space before the colon": ok(b"Content-Length : 2\r\n", b"ok"),
    "NUL": ok(b"X: a\x00b\r\nContent-Length: 0\r\n"),
    "NUL in the reason": b"HTTP/1.1 200 O\x00K\r\nContent-Length: 0\r\n\r\n",
    "not HTTP": b"hello\r\n\r\n",
    "an empty line first": b"\r\n\r\n" + ok(b"Content-Length: 0\r\n"),
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "status 099": b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
    "an upgrade that names nothing": b"HTTP/1.1 101 X\r\n\r\n",
    "a long field": ok(b"X: " + b"y" * 300 + b"\r\nContent-Length: 0\r\n"),
    "a long reason": b"HTTP/1.1 200 " + b"y" * 300 + b"\r\nContent-Length: 0\r\n\r\n",
    "many fields": ok(b"X: y\r\n" * 6 + b"Content-Length: 0\r\n"),
}
BROKEN = {
    "a chunk that is longer than it says": ok(CHUNKED, b"3\r\nabcd\r\n0\r\n\r\n"),
    "a size that is not one": ok(CHUNKED, b"x\r\nabc\r\n0\r\n\r\n"),
    "a size with a space": ok(CHUNKED, b"3 \r\nabc\r\n0\r\n\r\n"),
    "a size of many digits": ok(CHUNKED, b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
    "bare LF": ok(CHUNKED, b"3\nabc\n0\n\n"),
}


def cuts(data: bytes) -> list[list[bytes]]:
    """The data in two pieces, cut at every position, and byte by byte."""
    halves = [[data[:at], data[at:]] for at in range(1, len(data))]
    return [*halves, [data[at : at + 1] for at in range(len(data))]]


@pytest.mark.parametrize("name", WELL_FORMED)
@pytest.mark.parametrize("extra", [b"", b"\r", b"\n", b"\r\n\r\n", b"H", ok()])
def test_a_response_is_the_same_however_it_is_split(name: str, extra: bytes) -> None:
    whole = parse([WELL_FORMED[name] + extra])
    assert whole is not None
    assert whole.complete
    assert whole.excess is bool(extra), "what follows is noticed to the byte"
    for pieces in cuts(WELL_FORMED[name] + extra):
        assert parse(pieces) == whole, pieces


@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_head_is_refused_however_it_is_split(name: str) -> None:
    for pieces in [[REFUSED[name]], *cuts(REFUSED[name])]:
        assert parse(pieces) is None, pieces


@pytest.mark.parametrize(
    ("one", "field", "most"),
    [(b"HTTP/1.1 102 P\r\n\r\n", 64 * 1024, MAX_INTERIM),
     (b"HTTP/1.1 103 E\r\nLink: " + b"x" * 974 + b"\r\n\r\n", 10_000, 10)],
    ids=["many", "large"],
)  # fmt: skip
def test_interim_responses_are_limited_however_they_are_split(
    one: bytes, field: int, most: int
) -> None:
    def read(count: int, size: int) -> bool:
        parser = ResponseParser(HeadLimits(field, field, 5), BodyStream)
        for _ in range(2):  # each response of a connection may have as many
            parser.expect()
            data = one * count + ok(b"Content-Length: 0\r\n")
            if not any(parser.feed(data[at : at + size]) for at in range(0, len(data), size)):
                return False
        return True

    for size in (1, 7, 1 << 20):
        assert read(most, size)
        with pytest.raises(BadResponse, match="interim"):
            read(most + 1, size)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_body_fails_however_it_is_split(name: str) -> None:
    whole = parse([BROKEN[name]])
    assert whole is not None
    assert whole.body is None
    for pieces in cuts(BROKEN[name]):
        assert parse(pieces) == whole, pieces


def test_bodies_and_fields_arrive_as_they_were_sent() -> None:
    found = {name: parse([data]) for name, data in WELL_FORMED.items()}
    bodies = {name: outcome.body for name, outcome in found.items() if outcome is not None}
    assert bodies["length"] == b"hello"
    assert bodies["line breaks in the body"] == b"\r\n\r\n\r\n\r\n"
    assert bodies["chunks"] == b"abc\r\n"
    assert bodies["trailers"] == b"abc"
    assert bodies["304"] == b""
    fields = found["empty values"]
    assert fields is not None
    assert fields.head[2] == [(b"A", b""), (b"B", b""), (b"C", b"x")]
    own = found["own fields"]
    assert own is not None
    assert own.head[2:4] == ([], b"0")
    latin = found["a reason in Latin-1"]
    assert latin is not None
    assert latin.head[1] == b"Tr\xe8s bien"


@pytest.mark.parametrize(
    ("fields", "length"), [(b"Content-Length: 5\r\n", b"5"), (CHUNKED, None), (b"", None)]
)
def test_a_response_to_head_ends_with_its_head(fields: bytes, length: bytes | None) -> None:
    for pieces in [[ok(fields)], *cuts(ok(fields))]:
        found = parse(pieces, to_head=True)
        assert found is not None
        assert (found.head[3], found.body) == (length, b"")
        assert (found.complete, found.excess) == (True, False)
    for pieces in cuts(ok(fields, b"hello")):
        found = parse(pieces, to_head=True)
        assert found is not None
        assert found.excess, "a body that may not be there is not read as one"


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_body_without_framing_ends_with_the_connection(version: bytes) -> None:
    data = b"HTTP/%b 200 OK\r\nX: y\r\n\r\nall\r\n\r\nof it" % version
    for pieces in [[data], *cuts(data)]:
        open_still = parse(pieces)
        assert open_still is not None
        assert not open_still.complete
        found = parse(pieces, ended=True)
        assert found is not None
        assert (found.body, found.complete, found.excess) == (b"all\r\n\r\nof it", True, False)
        assert found.head[4], "its connection is not used again"


@pytest.mark.parametrize(
    "data", [ok(b"Content-Length: 5\r\n", b"hell"), ok(CHUNKED, b"3\r\nabc\r\n")]
)
def test_a_framed_body_does_not_end_with_the_connection(data: bytes) -> None:
    found = parse([data], ended=True)
    assert found is not None
    assert not found.complete


def test_an_accepted_upgrade_keeps_the_data_that_follows() -> None:
    data = b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for pieces in [[data], *cuts(data)]:
        parser = ResponseParser(LIMITS, BodyStream)
        parser.expect(upgrade=True)
        *before, last = pieces
        assert all(parser.feed(piece) is None for piece in before)
        message = parser.feed(last + b"\x81\x02hi")
        assert message is not None
        assert (message.upgrade, message.fields) == ([b"websocket"], [])
        assert (message.status, parser.tail, parser.complete) == (101, b"\x81\x02hi", True)
    assert parse([data.replace(b"1.1", b"1.0")], upgrade=True) is None


def test_data_before_a_request_belongs_to_no_response() -> None:
    parser = ResponseParser(LIMITS, BodyStream)
    assert parser.feed(ok(b"Content-Length: 0\r\n")) is None
    assert parser.excess


@pytest.mark.parametrize(
    ("accepted", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 80, b"y" * 20),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 90, b"X: y\r\n" * 10),
    ],
    ids=["line", "head"],
)
def test_an_endless_line_or_head_is_refused_before_its_end(accepted: bytes, more: bytes) -> None:
    parser = ResponseParser(LIMITS, BodyStream)
    parser.expect()
    parser.feed(accepted)
    with pytest.raises(BadResponse):
        parser.feed(more)


def test_an_endless_chunk_extension_breaks_the_body() -> None:
    parser = ResponseParser(LIMITS, BodyStream)
    parser.expect()
    message = parser.feed(ok(CHUNKED))
    assert message is not None
    parser.feed(b"3;")
    for _ in range(20):
        parser.feed(b"y" * 10)
    assert isinstance(message.body.failure, BadResponse)


def test_responses_in_sequence_are_read_one_by_one() -> None:
    parser = ResponseParser(LIMITS, BodyStream)
    for data in (*WELL_FORMED.values(), *WELL_FORMED.values()):
        parser.expect()
        message = parser.feed(data)
        assert message is not None
        assert (parser.complete, parser.excess) == (True, False)
