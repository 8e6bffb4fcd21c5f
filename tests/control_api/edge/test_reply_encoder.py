"""The bytes of a response: what depends on the request's method and version, and what never may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from control_api.edge.answers import HttpReply
from control_api.edge.sending import ReplyEncoder
from control_api.edge.server import ApiListener
from policies.ground.addresses import ListenAddress

SECOND = 1_763_679_600  # 2025-11-20 23:00:00 UTC


class Answering:
    """Answers every request with one reply, at a time that a test moves."""

    def __init__(self) -> None:
        self.now = SECOND * 1_000_000
        self.reply = HttpReply(200, b"[]", "application/json", {"X-More": "é"})
        self.response = ReplyEncoder(lambda: self.now).response
        self.new_request_id = lambda: "id-1"

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        return self.response(self.reply, "id-1")


@pytest.fixture
async def served() -> AsyncIterator[tuple[Answering, int]]:
    answering = Answering()
    listener = await ApiListener.open(ListenAddress("127.0.0.1", 0), "X", answering, [])
    yield answering, listener.address.port
    await listener.drain(1)


async def exchange(port: int, sent: bytes) -> list[bytes]:
    """The lines that come back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    received = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return received.split(b"\r\n")


LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
FIELDS = [
    b"Server: sluice",
    b"Cache-Control: no-store",
    b"X-Content-Type-Options: nosniff",
    b"Content-Type: application/json",
    b"X-Request-ID: id-1",
    b"Date: Thu, 20 Nov 2025 23:00:00 GMT",
    "X-More: é".encode(),
    b"Content-Length: 2",
]


async def test_a_connection_stays_open_until_a_request_closes_it(
    served: tuple[Answering, int],
) -> None:
    lines = await exchange(served[1], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + LAST)
    first = [b"HTTP/1.1 200 OK", *FIELDS, b"", b"[]HTTP/1.1 200 OK"]
    assert lines == [*first, *FIELDS, b"Connection: close", b"", b"[]"]


async def test_http_1_0_closes_unless_asked_to_stay(served: tuple[Answering, int]) -> None:
    stay = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    lines = await exchange(served[1], stay + b"GET / HTTP/1.0\r\n\r\n")
    first = [b"HTTP/1.0 200 OK", *FIELDS, b"Connection: keep-alive", b"", b"[]HTTP/1.0 200 OK"]
    assert lines == [*first, *FIELDS, b"", b"[]"]


async def test_head_has_the_length_of_the_body_that_it_leaves_out(
    served: tuple[Answering, int],
) -> None:
    lines = await exchange(served[1], b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert lines == [b"HTTP/1.1 200 OK", *FIELDS, b"Connection: close", b"", b""]


async def test_the_date_follows_the_clock(served: tuple[Answering, int]) -> None:
    answering, port = served
    assert FIELDS[5] in await exchange(port, LAST)
    answering.now += 1_000_000
    assert b"Date: Thu, 20 Nov 2025 23:00:01 GMT" in await exchange(port, LAST)


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b", "a\x7fb"])
async def test_no_value_begins_another_header(served: tuple[Answering, int], value: str) -> None:
    answering, port = served
    answering.reply = answering.reply._replace(headers={"Location": value})
    lines = await exchange(port, LAST)
    assert lines[0] == b"HTTP/1.1 500 Internal Server Error"
    assert not any(line.startswith((b"Set-Cookie", b"Location")) for line in lines)
