"""The simple reader reads a request as the parser does, or not at all."""

import asyncio
from typing import Any

import pytest
from aiohttp import HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, HttpResponseParser
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.http.attribution import Attribution
from sidecar.http.headers import encode_fields, sort_request_fields, sort_response_fields
from sidecar.proxy.limits import LIMITS
from sidecar.proxy.messages import simple_request as plain
from sidecar.proxy.messages.simple_response import parse_simple_response
from tests.properties import examples

SOMEBODY = Attribution("somebody", None, None, None)

NAMES = st.sampled_from(
    [
        "Host",
        "host",
        "X-A",
        "x_a",
        "Connection",
        "Content-Length",
        "Content-Type",
        "Expect",
        "TE",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Encoding",
        "X-Sluice-User",
        "baggage",
        "Cookie",
        "Authorization",
        "Trailer",
        "Proxy-Connection",
        "X-Forwarded-For",
        "",
        "X A",
        "X\x00",
        "X:",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [
            "kb",
            "kb:80",
            "a b",
            "0",
            "2",
            "007",
            "+2",
            "2, 2",
            "close",
            "keep-alive",
            "Keep-Alive",
            "chunked",
            "gzip",
            "",
            " ",
            "a ",
            " a",
            "\ta",
            "a\tb",
            "a\rb",
            "a\nb",
            "a\x00b",
            "é",
            "100-continue",
            "websocket",
            "h2c",
            "ada",
            "sluice.user=ada",
            "application/json",
        ]
    ),
    st.text(max_size=12),
)
SEPARATORS = st.sampled_from([": ", ": ", ": ", ":", " : ", ":\t", ":  "])
ENDS = st.sampled_from(["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r\r\n", "\r\n "])
FIELDS = st.lists(st.tuples(NAMES, SEPARATORS, VALUES, ENDS), max_size=6)
BODIES = st.sampled_from([b"", b"hi", b"hi" + b"GET / HTTP/1.1\r\n\r\n"])


def block(fields: list[tuple[str, str, str, str]]) -> bytes:
    return "".join("".join(each) for each in fields).encode() + b"\r\n"


@pytest.fixture(scope="module")
def loop() -> Any:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.mark.parametrize("line", [b"GET /a HTTP/1.1", b"POST /a?x=1 HTTP/1.1"])
@examples(400)
@given(fields=FIELDS, body=BODIES)
@example(fields=[("Host", ": ", "kb", "\r\n")], body=b"")
@example(fields=[("Host", ": ", "kb", "\r\n"), ("Content-Length", ": ", "2", "\r\n")], body=b"hi")
def test_a_plain_request_is_what_the_parser_makes_of_it(
    loop: Any, line: bytes, fields: list[tuple[str, str, str, str]], body: bytes
) -> None:
    given_block = block(fields)
    read = plain.parse_request_fields(given_block, SOMEBODY)
    if read is None:
        return
    found, head = read
    message, payload = parsed(loop, line + b"\r\n" + given_block + body[: found.length])
    assert (message.method, message.path) == plain.parse_request_line(line)
    assert message.version == HttpVersion11
    assert head == sort_request_fields(message.raw_headers)
    # What is kept of it says where the same lines stand in the next block like it.
    assert found.runs is None or found.lines(given_block) == head.lines
    assert found.stated == head.length
    assert not (message.upgrade)
    assert not (message.chunked)
    assert not (message.should_close)
    assert int(message.headers.get("content-length", 0)) == found.length
    assert payload.is_eof() == (len(body) >= found.length)


def parsed(loop: Any, data: bytes) -> Any:
    protocol: Any = _Protocol()
    parser = HttpRequestParser(
        protocol,
        loop,
        LIMITS.buffer_bytes,
        max_line_size=LIMITS.line_bytes,
        max_field_size=LIMITS.field_bytes,
        max_headers=LIMITS.fields,
        auto_decompress=False,
    )
    [found], upgraded, rest = parser.feed_data(data)
    assert not upgraded
    assert not rest
    return found


class _Protocol:
    """What the parser asks of a connection."""

    _reading_paused = False

    def pause_reading(self, **_: Any) -> None: ...
    def resume_reading(self, **_: Any) -> None: ...


@examples(400)
@given(
    status=st.sampled_from(["200", "204", "304", "404", "500", "101", "100", "2000", "20"]),
    reason=st.sampled_from(["OK", "Not Found", "", " ", "a\rb", "é"]),
    fields=FIELDS,
    body=BODIES,
)
@example(status="200", reason="OK", fields=[("Content-Length", ": ", "2", "\r\n")], body=b"hi")
def test_a_plain_answer_is_what_the_parser_makes_of_it(
    loop: Any, status: str, reason: str, fields: list[tuple[str, str, str, str]], body: bytes
) -> None:
    data = f"HTTP/1.1 {status} {reason}\r\n".encode() + block(fields) + body
    found = parse_simple_response(data)
    if found is None:
        return
    protocol: Any = _Protocol()
    parser = HttpResponseParser(
        protocol,
        loop,
        LIMITS.buffer_bytes,
        max_line_size=LIMITS.response_field_bytes,
        max_field_size=LIMITS.response_field_bytes,
        max_headers=LIMITS.fields,
        auto_decompress=False,
        response_with_body=True,
        read_until_eof=True,
    )
    [(message, payload)], upgraded, rest = parser.feed_data(data)
    assert not upgraded
    assert not rest
    assert not (message.should_close)
    assert not (message.chunked)
    assert (message.code, message.reason.encode()) == (found.status, found.line[13:])
    head = sort_response_fields(message.raw_headers)
    assert encode_fields(head.forward) == found.fields
    assert payload.is_eof()
    assert payload.read_nowait(-1) == found.body


@pytest.mark.parametrize(
    "line",
    [
        b"GET /a HTTP/1.0",
        b"GET /a HTTP/2.0",
        b"GET  /a HTTP/1.1",
        b"HEAD /a HTTP/1.1",
        b"GET /a",
        b"get /a HTTP/1.1",
        b"GET http://a/ HTTP/1.1",
        b"GET * HTTP/1.1",
        b"CONNECT a:1 HTTP/1.1",
        b"GET /a HTTP/1.1 ",
        b"GET /a\tb HTTP/1.1",
        b"GET /a\x00 HTTP/1.1",
        b"GET /\xc3\xa9 HTTP/1.1",
    ],
)
def test_other_request_lines_are_the_parsers(line: bytes) -> None:
    assert plain.parse_request_line(line) is None


def test_what_the_parser_refuses_is_not_plain(loop: Any) -> None:
    for fields in (
        b"Host: a\r\nHost: b\r\n",
        b"Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
        b"Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Host: a\r\n X : b\r\n",
    ):
        assert plain.parse_request_fields(fields + b"\r\n", SOMEBODY) is None
        with pytest.raises(HttpProcessingError):
            parsed(loop, b"GET / HTTP/1.1\r\n" + fields + b"\r\n")
