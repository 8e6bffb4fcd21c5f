"""HTTP/2 connections, asked by an independent implementation of the protocol."""

import asyncio

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset

from sidecar.http.headers import ResponseHead
from sidecar.http.server.request import Answer, HttpRequest, ResponseSent, Serve
from tests.sidecar.http.server.served import Client, at_once, get

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])

HEAD = [(":method", "GET"), (":scheme", "http"), (":authority", "kb.test"), (":path", "/a")]


class Http2Client:
    """A client of one connection, by the library `h2`."""

    def __init__(self, serve: Serve) -> None:
        self.wire = Client(serve)
        self.h2 = H2Connection(H2Configuration(header_encoding=None))
        self.h2.initiate_connection()
        self.events: list[Event] = []
        self.seen = 0

    async def settle(self) -> list[Event]:
        """Exchange bytes until both sides are silent; returns the events since the last call."""
        before = len(self.events)
        while data := self.h2.data_to_send():
            self.wire.send(data)
            received = (await self.wire.settle())[self.seen :]
            self.seen += len(received)
            self.events += self.h2.receive_data(received)
        return self.events[before:]

    def request(self, *fields: tuple[str, str], end: bool = True) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [*HEAD, *fields], end_stream=end)
        return stream


async def test_requests_are_answered_side_by_side() -> None:
    client = Http2Client(at_once)
    streams = [client.request() for _ in range(5)]
    events = await client.settle()
    answered = [each.stream_id for each in events if isinstance(each, ResponseReceived)]
    assert sorted(answered) == streams
    bodies = [each.data for each in events if isinstance(each, DataReceived)]
    assert bodies == [b"/a"] * 5
    assert len([each for each in events if isinstance(each, StreamEnded)]) == 5


async def test_a_request_is_that_of_http_1() -> None:
    served: list[HttpRequest] = []

    async def serve(request: HttpRequest) -> Answer:
        served.append(request)
        return await at_once(request)

    client = Http2Client(serve)
    client.request(("x-a", "1"), ("cookie", "a=1"), ("cookie", "b=2"))
    await client.settle()
    [request] = served
    assert (request.method, request.target, request.version) == ("GET", "/a", "2")
    assert request.fields == [(b"host", b"kb.test"), (b"x-a", b"1"), (b"cookie", b"a=1; b=2")]
    assert request.body.complete


async def test_a_body_that_arrives_with_its_head_is_there_at_once() -> None:
    complete: list[bool] = []

    async def serve(request: HttpRequest) -> Answer:
        complete.append(request.body.complete)
        return await at_once(request)

    client = Http2Client(serve)
    client.h2.send_data(client.request(end=False), b"abc", end_stream=True)
    await client.settle()
    assert complete == [True]


async def test_a_slow_reader_of_a_body_stops_its_stream_and_no_other() -> None:
    go = asyncio.Event()
    taken = bytearray()

    async def serve(request: HttpRequest) -> Answer:
        if request.method == "GET":
            return await at_once(request)
        await go.wait()
        while part := await request.body.next(5):
            taken.extend(part)
        return await at_once(request)

    client = Http2Client(serve)
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, [(":method", "POST"), *HEAD[1:]])
    client.h2.send_data(stream, b"x" * 16_000)
    client.h2.send_data(stream, b"x" * 16_000)
    await client.settle()
    assert client.h2.local_flow_control_window(stream) == 65_535 - 32_000
    client.request()
    events = await client.settle()
    assert any(isinstance(each, ResponseReceived) for each in events), "the other is answered"
    go.set()
    client.h2.ping(b"12345678")
    await client.settle()
    client.h2.ping(b"12345678")
    await client.settle()
    assert bytes(taken) == b"x" * 32_000
    client.h2.end_stream(stream)
    events = await client.settle()
    assert any(isinstance(each, StreamEnded) and each.stream_id == stream for each in events)


async def test_a_response_without_its_end_resets_the_stream() -> None:
    async def serve(request: HttpRequest) -> Answer:
        request.begin(ResponseHead(200, b"OK", b"", None))
        request.send(b"part")
        return ResponseSent(keep_alive=False, status=200)

    client = Http2Client(serve)
    stream = client.request()
    events = await client.settle()
    assert any(isinstance(each, StreamReset) and each.stream_id == stream for each in events)


@pytest.mark.parametrize("size", [1, 9, 24, 100])
async def test_the_first_bytes_may_come_in_pieces(size: int) -> None:
    client = Http2Client(at_once)
    client.request()
    data = client.h2.data_to_send()
    client.wire.send(*(data[at : at + size] for at in range(0, len(data), size)))
    events = client.h2.receive_data(await client.wire.settle())
    assert any(isinstance(each, StreamEnded) for each in events)


async def test_a_preface_behind_a_request_is_malformed_http_1() -> None:
    client = Client(at_once)
    client.send(get("/a"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert await client.settle() == b"[/a][fault close]"
