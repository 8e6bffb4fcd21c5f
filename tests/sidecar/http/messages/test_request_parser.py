"""Requests are read the same however their bytes are cut, and nothing without an end is kept."""

import itertools
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.request_parser import (
    BrokenFraming,
    HeadLimits,
    RequestMessage,
    RequestParser,
)
from tests.support.properties import examples

LIMITS = HeadLimits(line=1000, field=2000, fields=10)
KIB = 1024
HOST = b"Host: a\r\n"
OFFER = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


class Parsed:
    """The messages that pieces of bytes come to."""

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        self.messages: list[RequestMessage] = []
        self.parser = RequestParser(LIMITS, RequestMessage, BodyStream, self.messages.append)
        self.bodies: dict[int, bytearray] = {}
        self.rest: bytes | None = None
        for piece in pieces:
            self.feed(piece)

    def feed(self, piece: bytes) -> None:
        if self.rest is not None:
            self.rest += piece
        elif not self.parser.failed:
            self.rest = self.parser.feed(piece)

    @property
    def told(self) -> list[object]:
        """All that can be told of each message."""
        return [_told(each) for each in self.messages]


def _told(message: RequestMessage) -> object:
    body: object = BrokenFraming if isinstance(message.body.failure, BrokenFraming) else b""
    if message.body.failure is None:
        body = message.body.take(), message.body.complete
    return (
        message.fault, message.method, message.target, message.version, message.fields,
        message.should_close, message.offers_upgrade, body,
    )  # fmt: skip


def request(line: bytes, fields: bytes = b"", body: bytes = b"") -> bytes:
    return line + b" HTTP/1.1\r\n" + HOST + fields + b"\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked\r\n"
MESSAGES = {
    "plain": request(b"GET /a?b=c"),
    "pipelined": request(b"GET /a") + request(b"GET /b") + request(b"GET /c"),
    "length": request(b"POST /a", b"Content-Length: 5\r\n", b"hello") + request(b"GET /b"),
    "no bytes": request(b"POST /a", b"Content-Length: 0\r\n") + request(b"GET /b"),
    "chunks": request(b"POST /a", CHUNKED, b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n")
    + request(b"GET /b"),
    "trailers": request(b"POST /a", CHUNKED, b"2\r\nhe\r\n0\r\nX-A: b\r\nX-B: c\r\n\r\n")
    + request(b"GET /b"),
    "broken chunks": request(b"POST /a", CHUNKED, b"2\r\nhe\r\nx\r\n") + request(b"GET /b"),
    "an offer": request(b"GET /a", OFFER) + b"anything at all",
    "an offer with a body": request(b"POST /a", OFFER + b"Content-Length: 5\r\n", b"hello"),
    "an offer with chunks": request(b"POST /a", OFFER + CHUNKED, b"2\r\nhe\r\n0\r\n\r\n"),
    "a tunnel": request(b"CONNECT a:1") + request(b"GET /inside"),
    "behind a close": request(b"GET /a", b"Connection: close\r\n") + request(b"GET /b"),
    "old": b"GET /a HTTP/1.0\r\n\r\n",
    "older": b"GET /a\r\n\r\n",
    "white space": request(b"GET /a", b"X-A: \t b \t\r\nX-B:\r\nX-C:c\r\n"),
    "empty lines": b"\r\n\r\n" + request(b"GET /a") + b"\r\n" + request(b"GET /b"),
    "malformed": request(b"GET /a") + b"nonsense\r\n\r\n" + request(b"GET /b"),
    "malformed field": request(b"GET /a", b"X A: b\r\n"),
    "two lengths": request(b"POST /a", b"Content-Length: 1\r\nContent-Length: 2\r\n", b"ab"),
    "length and chunks": request(b"POST /a", b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n"),
    "long target": request(b"GET /" + b"a" * LIMITS.line),
    "long field": request(b"GET /", b"X-A: " + b"a" * LIMITS.field + b"\r\n"),
    "many fields": request(b"GET /", b"X-A: b\r\n" * LIMITS.fields),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_splitting_a_message_anywhere_changes_nothing(name: str) -> None:
    data = MESSAGES[name]
    whole = Parsed([data])
    told = whole.told
    for at in range(1, len(data)):
        cut = Parsed([data[:at], data[at:]])
        assert cut.told == told, at
        assert cut.parser.failed == whole.parser.failed
    single = Parsed(data[at : at + 1] for at in range(len(data)))
    assert single.told == told


@given(
    names=st.lists(st.sampled_from(sorted(MESSAGES)), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
@examples(100)
def test_splitting_messages_into_any_pieces_changes_nothing(
    names: list[str], sizes: list[int]
) -> None:
    data = b"".join(MESSAGES[name] for name in names)
    assert Parsed(_cut(data, itertools.cycle(sizes))).told == Parsed([data]).told


def _cut(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at : at + size]
        at += size


def test_messages_are_read_as_they_were_written() -> None:
    parsed = Parsed([MESSAGES["chunks"], MESSAGES["white space"]])
    first, second, third = parsed.messages
    assert (first.method, first.target, first.version) == ("POST", "/a", "1.1")
    assert first.fields == [(b"Host", b"a"), (b"Transfer-Encoding", b"chunked")]
    assert first.body.take() == b"hello"
    assert (second.target, second.body.taken) == ("/b", True)
    assert third.fields[1:] == [(b"X-A", b"b"), (b"X-B", b""), (b"X-C", b"c")]


def test_data_after_an_upgrade_request_is_returned_unread() -> None:
    for name, rest in (("an offer", b"anything at all"), ("a tunnel", request(b"GET /inside"))):
        parsed = Parsed([MESSAGES[name]])
        [message] = parsed.messages
        assert message.offers_upgrade
        assert parsed.rest == rest


@pytest.mark.parametrize("name", ["an offer with a body", "an offer with chunks"])
def test_something_behind_the_body_of_an_offer_is_noticed(name: str) -> None:
    parsed = Parsed([MESSAGES[name] + request(b"GET /smuggled")])
    assert [each.target for each in parsed.messages] == ["/a"]
    assert parsed.rest
    assert Parsed([MESSAGES[name]]).rest is None


@pytest.mark.parametrize("framing", [b"Content-Length: 5\r\n", CHUNKED])
def test_an_upgrade_request_is_delivered_before_its_body_arrives(framing: bytes) -> None:
    """Its sender may wait for `100 Continue`."""
    [message] = Parsed([request(b"POST /a", OFFER + framing)]).messages
    assert (message.target, message.body.settled) == ("/a", False)


def test_an_upgrade_request_with_an_endless_body_breaks_it_off() -> None:
    head = request(b"POST /a", OFFER + b"Transfer-Encoding: gzip\r\n")
    for pieces in ([head], [head + b"hello"], [head, b"hello"]):
        parsed = Parsed(pieces)
        [message] = parsed.messages
        assert parsed.parser.failed
        assert message.target == "/a"
        assert isinstance(message.body.failure, BrokenFraming)


def test_after_an_offer_that_was_ignored_the_next_request_is_read() -> None:
    parsed = Parsed([request(b"GET /a", OFFER)])
    assert parsed.rest == b""
    parsed.parser.reset()
    parsed.rest = None
    parsed.feed(request(b"GET /b"))
    assert [each.target for each in parsed.messages] == ["/a", "/b"]


@pytest.mark.parametrize(
    ("name", "count"),
    [("malformed", 2), ("malformed field", 1), ("two lengths", 1), ("length and chunks", 1),
     ("long target", 1), ("long field", 1), ("many fields", 1), ("behind a close", 2)],
)  # fmt: skip
def test_an_unreadable_message_is_a_fault_that_keeps_nothing(name: str, count: int) -> None:
    parsed = Parsed([MESSAGES[name], request(b"GET /later")])
    assert len(parsed.messages) == count
    last = parsed.messages[-1]
    assert last.fault
    assert (last.method, last.target, last.fields) == ("", "", [])
    assert parsed.parser.failed


def test_messages_at_each_limit_are_read_and_beyond_it_refused() -> None:
    within = request(
        b"GET /" + b"a" * (LIMITS.line - 1), b"X-A: " + b"b" * (LIMITS.field - 3) + b"\r\n"
    )
    assert not Parsed([within]).messages[0].fault
    fields = b"X-A: b\r\n" * (LIMITS.fields - 1)
    assert not Parsed([request(b"GET /", fields)]).messages[0].fault


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"1\r\nab\r\n", b"-1\r\n", b"0x1\r\n", b"1 \r\na\r\n", b"1\na\r\n",
             b"f" * 17 + b"\r\n", b"1;a=b\nx\r\n", b"1\r\na\n"],
)  # fmt: skip
def test_broken_chunks_break_the_body_of_a_head_that_was_delivered(body: bytes) -> None:
    for pieces in ([request(b"POST /a", CHUNKED, body)], [request(b"POST /a", CHUNKED), body]):
        parsed = Parsed(pieces)
        [message] = parsed.messages
        assert (message.fault, message.target) == ("", "/a")
        assert isinstance(message.body.failure, BrokenFraming)
        assert not message.body.complete
        assert parsed.parser.failed


def test_a_large_body_in_odd_pieces_is_read() -> None:
    """Pieces that hold nothing but framing are no endless line."""
    size = 64 * KIB
    parsed = Parsed()
    parsed.feed(request(b"POST /a", CHUNKED))
    for _ in range(20):
        for piece in (b"%x" % size, b"\r\n", bytes(size), b"\r", b"\n"):
            parsed.feed(piece)
    parsed.feed(b"0\r\n\r\n")
    parsed.feed(b"\r\n")
    parsed.feed(request(b"GET /b"))
    first, second = parsed.messages
    assert (first.body.complete, first.body.total_bytes) == (True, 20 * size)
    assert second.target == "/b"


ENDLESS = {
    "method": (b"", b"A"),
    "target": (b"GET /", b"a"),
    "field name": (b"GET / HTTP/1.1\r\n", b"a"),
    "field value": (b"GET / HTTP/1.1\r\nX-A: ", b"a"),
    "white space before a value": (b"GET / HTTP/1.1\r\nX-A: ", b" "),
    "fields": (b"GET / HTTP/1.1\r\n", b"X-A: b\r\n"),
    "empty lines": (b"", b"\r\n"),
    "chunk size": (request(b"POST /", CHUNKED), b"0"),
    "chunk extension": (request(b"POST /", CHUNKED) + b"1;a=", b"b"),
    "chunk extensions": (request(b"POST /", CHUNKED) + b"1", b";a=b"),
    "trailer": (request(b"POST /", CHUNKED) + b"0\r\nX-A: ", b"b"),
    "trailers": (request(b"POST /", CHUNKED) + b"0\r\n", b"X-A: b\r\n"),
}


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("name", ENDLESS)
def test_endless_messages_are_refused(name: str, size: int) -> None:
    begin, more = ENDLESS[name]
    parsed = Parsed([begin])
    tracemalloc.start()
    try:
        fed = 0
        while not parsed.parser.failed:
            parsed.feed(more * size)
            fed += len(more * size)
            assert fed < 200 * KIB, "it is still read"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 400 * KIB
    [message] = parsed.messages
    assert message.fault or isinstance(message.body.failure, BrokenFraming)


def test_a_bug_of_ours_is_not_taken_for_a_malformed_request() -> None:
    def buggy(_message: RequestMessage) -> None:
        raise ZeroDivisionError

    parser = RequestParser(LIMITS, RequestMessage, BodyStream, buggy)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # what it is wrapped in is the library's
        parser.feed(request(b"GET /"))
    assert isinstance(raised.value.__context__, ZeroDivisionError)
    assert not parser.failed


@given(data=st.binary(max_size=300), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4))
@examples(200)
def test_any_bytes_have_the_same_result_however_they_are_split(
    data: bytes, sizes: list[int]
) -> None:
    assert Parsed(_cut(data, itertools.cycle(sizes))).told == Parsed([data]).told
