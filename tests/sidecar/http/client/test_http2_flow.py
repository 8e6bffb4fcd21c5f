"""Neither a slow reader of its response, nor a slow or hostile server, harms what it should not."""

import asyncio
from collections.abc import Callable

import pytest

from sidecar.http.client.http2_connection import NotHttp2
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.messages.body import BodyStream, ConnectionLost
from sidecar.http.messages.response_parser import BadResponse
from tests.sidecar.http.client.served_http2 import (
    GET,
    REFUSED,
    ask,
    begun,
    pool_of,
    served,
)
from tests.sidecar.http.http2 import frames
from tests.support.http2_source import Call
from tests.support.loop_clock import moving_clock
from tests.support.waiting import turns, until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/http/client/test_http2.py::test_requests_share_a_connection"
)


async def test_a_slow_reader_of_a_response_stops_its_stream_and_no_other() -> None:
    size = 8 << 20
    sent = [0]

    async def script(call: Call) -> None:
        if call.target == "/b":
            await call.answer()
            return
        call.begin()
        for _ in range(size >> 16):
            await call.data(bytes(65536))
            sent[0] += 65536
        await call.data(b"", end=True)

    async with served(script) as (pool, source):
        slow = [await begun(pool) for _ in range(60)]
        messages = [await each.response() for each in slow]
        await until_async("the windows are full", lambda: sent[0] >= 60 * (256 << 10))
        await turns(100)
        assert sent[0] <= 60 * (256 << 10)
        assert (await ask(pool, GET._replace(target="/b")))[1] == b"ok"
        got = 0
        while part := await messages[0].body.next(5):
            got += len(part)
        assert got == size
        for each in slow:
            pool.discard(each)
        # The window of the connection is whole again: it carries more than it holds.
        for _ in range(5):
            carrier = await begun(pool)
            body = (await carrier.response()).body
            while await body.next(5):
                pass
            pool.release(carrier)
        assert len(source.connections) == 1


async def test_responses_that_are_not_read_fill_no_memory() -> None:
    async def script(call: Call) -> None:
        call.begin()
        await call.data(bytes(64 << 20), end=True)

    async with served(script) as (pool, _source):
        slow = [await begun(pool) for _ in range(20)]
        bodies = [(await each.response()).body for each in slow]
        await until_async("full", lambda: all(each.total_bytes >= 256 << 10 for each in bodies))
        await turns(100)
        assert all(each.total_bytes == 256 << 10 for each in bodies)
        for each in slow:
            pool.discard(each)


async def test_an_upload_waits_for_the_credit_of_its_server() -> None:
    async def script(call: Call) -> None:
        if call.target == "/b":
            await call.answer()
        else:
            await call.ended.wait()
            await call.answer(b"%d" % len(call.body))

    upload = UpstreamRequest("POST", "/a", b"", chunked=True, stream=BodyStream())
    async with served(script) as (pool, source):
        source.credits = False
        carrier = await begun(pool, upload)
        sent = 0
        while not carrier.writing_paused:
            carrier.send_part(bytes(16384))
            sent += 16384
        assert sent <= 65536 * 2 + 32768
        with pytest.raises(TimeoutError):
            await carrier.drain(0.2)
        assert (await ask(pool, GET._replace(target="/b")))[1] == b"ok", "others go on"
        source.credits = True
        [call] = [each for each in source.calls if each.target == "/a"]
        call.connection.h2.acknowledge_received_data(call.unread, call.stream)
        call.connection.flush()
        for _ in range(100):
            await carrier.drain(5)
            carrier.send_part(bytes(65536))
            sent += 65536
        carrier.finish_body(b"")
        message = await carrier.response()
        assert await message.body.next(5) == b"%d" % sent
        pool.release(carrier)


# ----------------------------------------------------------------------------- hostile servers


Flood = Callable[[Call], bytes]
FLOODS: dict[str, Flood] = {
    "settings": lambda _: frames.settings() * 40,
    "pings": lambda _: frames.ping() * 200,
    "resets": lambda call: frames.reset(call.stream, 0) * 1200,
    "empty data": lambda call: (
        frames.headers(call.stream, [(b":status", b"200")], end=False)
        + frames.data(call.stream) * 200
    ),
    "continuations": lambda call: (
        frames.headers(call.stream, [(b":status", b"200")], end=False, flags=0)
        + frames.frame(frames.CONTINUATION, call.stream, frames.fields([(b"x", b"1")])) * 20
    ),
    "window updates": lambda _: frames.update(0, 1) * 1200,
    "unknown": lambda _: frames.frame(frames.UNKNOWN) * 1200,
    "priorities": lambda call: frames.frame(frames.PRIORITY, call.stream, bytes(5)) * 1200,
    "a long head": lambda call: (
        frames.headers(call.stream, [(b":status", b"200")], flags=0)
        + b"".join(
            frames.frame(
                frames.CONTINUATION,
                call.stream,
                frames.fields([(b"x", b"1" * 14_000)]),
                each == 4 and 4,
            )
            for each in range(5)
        )
    ),
    "a long frame": lambda call: (
        (1 << 20).to_bytes(3, "big") + b"\0\0" + call.stream.to_bytes(4, "big")
    ),
    "a push": lambda call: frames.frame(
        frames.PUSH_PROMISE, call.stream, b"\0\0\0\2" + frames.fields(frames.GET), 4
    ),
    "data of no stream": lambda _: frames.data(99, b"x"),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_breaks_the_connection_off_and_the_next_request_gets_another(
    kind: str,
) -> None:
    async def script(call: Call) -> None:
        if len(source.connections) > 1:
            await call.answer()
        elif call.stream == 3:
            call.connection.writer.write(FLOODS[kind](call))

    async with served(script) as (pool, source):
        other = await begun(pool)
        with pytest.raises((BadResponse, ConnectionLost)):
            await ask(pool)
        with pytest.raises((BadResponse, ConnectionLost)):
            await other.response()
        pool.discard(other)
        assert (await ask(pool))[1] == b"ok"
        assert pool.connections == 1


async def test_what_a_busy_server_sends_is_no_flood() -> None:
    async def script(call: Call) -> None:
        # As servers of gRPC in Go do: they measure the round trip whenever a body arrives.
        call.connection.writer.write(frames.ping() + frames.update(0, 1) + frames.update(0, 1))
        if call.stream % 4 == 1:
            call.refuse(REFUSED)
        else:
            await call.answer()

    async with served(script) as (pool, source):
        for _ in range(1500):
            await asyncio.gather(ask(pool), return_exceptions=True)
        assert len(source.connections) == 1


async def test_a_head_that_never_ends_breaks_the_connection_off() -> None:
    async def script(call: Call) -> None:
        call.connection.silent = True
        call.connection.writer.write(frames.headers(call.stream, [(b":status", b"200")])[:-5])

    with moving_clock() as clock:
        async with served(script) as (pool, source):
            carrier = await begun(pool)
            waiting = asyncio.ensure_future(carrier.response())
            await turns(50)
            while not waiting.done():
                source.connections[0].writer.write(b"2")
                await turns(20)
                await clock.skip(8)
            with pytest.raises(BadResponse, match="took longer"):
                await waiting
            pool.discard(carrier)


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01", b"220 mail"]
)
async def test_a_server_that_does_not_speak_http_2_is_named_so(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = pool_of(server.sockets[0].getsockname()[1])
    with pytest.raises(NotHttp2 if said[:4] == b"HTTP" else OSError):
        await pool.connect()
    assert pool.connections == 0
    server.close()
