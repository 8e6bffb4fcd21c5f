"""The end of HTTP/2 connections: by the server, by time, and by a client that ends its sending
side. Nothing is lost that a client could not know, and nothing is left."""

import asyncio
import gc
import logging
import tracemalloc

import pytest

from sidecar.http.server.request import Answer, HttpRequest
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import POST, data, headers
from tests.sidecar.http.server.served import LIMITS, Gate, at_once, with_body
from tests.sidecar.http.server.served_http2 import NO_ERROR, Served, ended, goaway, head
from tests.support.loop_clock import moving_clock

pytestmark = [
    pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"]),
    pytest.mark.deep(
        stands_in="tests/sidecar/http/server/test_http2.py::test_requests_are_answered_side_by_side"
    ),
]

LARGEST = 0x7FFF_FFFF


async def test_a_connection_that_finishes_still_serves_what_its_client_sent_before_it_knew() -> (
    None
):
    client = Served()
    [connection] = client.wire.connections.open
    closed = connection.finish()
    found = await client.send()
    notice = [each for each in found if each.kind == frames.GOAWAY]
    assert [each.number for each in notice] == [LARGEST]
    assert not closed.done()
    found = await client.send(headers(1))
    assert ended(found) == [1]
    found = await client.send(frames.ping(frames.ACK))
    assert [each.number for each in found if each.kind == frames.GOAWAY] == [1]
    assert client.wire.closed
    await closed


async def test_a_connection_that_finishes_ends_with_its_last_response() -> None:
    gate = Gate()
    client = Served(gate)
    await client.send(headers(1))
    [connection] = client.wire.connections.open
    connection.finish()
    found = await client.send(*[frames.ping(frames.ACK)] * 3)
    assert len([each for each in found if each.kind == frames.GOAWAY]) == 2
    await client.send(headers(3))
    assert gate.targets == ["/a"], "a later stream is not processed"
    gate.release("/a")
    assert ended(await client.send()) == [1]
    assert client.wire.closed


async def test_a_client_that_does_not_answer_delays_the_end_by_a_second_at_most() -> None:
    with moving_clock() as clock:
        client = Served()
        [connection] = client.wire.connections.open
        closed = connection.finish()
        await clock.skip(1.1)
        await client.wire.settle()
        assert closed.done()


@pytest.mark.parametrize("before", ["finish", "flood", "broken"])
async def test_a_connection_may_finish_in_any_state(before: str) -> None:
    gate = Gate()
    client = Served(gate)
    [connection] = client.wire.connections.open
    client.wire.protocol.pause_writing()
    await client.send(headers(1))
    if before == "finish":
        connection.finish()
    else:
        await client.send(*[frames.ping()] * 101 if before == "flood" else [data(0, b"x")])
    connection.finish()
    gate.release("/a")
    await client.send()
    await connection.cut()
    await client.wire.settle()
    assert client.wire.closed
    assert not client.wire.connections.open


async def test_an_idle_connection_is_ended() -> None:
    with moving_clock() as clock:
        client = Served()
        await client.send(headers(1))
        await clock.skip(61)
        await clock.skip(5)
        found = await client.send()
        assert goaway(found) == NO_ERROR
        await clock.skip(2)
        assert client.wire.closed


@pytest.mark.parametrize("seconds", [0.0, 10.0])
async def test_a_client_that_ends_its_sending_side_waits_as_with_http_1(seconds: float) -> None:
    gate = Gate()
    limits = LIMITS._replace(half_close_seconds=seconds)
    with moving_clock() as clock:
        client = Served(gate, limits=limits)
        await client.send(headers(1), headers(3, head("/b")))
        client.wire.end()
        gate.release("/a")
        found = await client.send()
        assert ended(found) == ([1] if seconds else [])
        assert client.wire.closed == (not seconds)
        await clock.skip(11)
        assert client.wire.closed
        assert sorted(gate.cancelled) == (["/b"] if seconds else ["/a", "/b"])


async def test_a_body_breaks_off_when_its_client_ends_its_sending_side() -> None:
    failed: list[str] = []

    async def serve(request: HttpRequest) -> Answer:
        try:
            return await with_body(request)
        except ConnectionError as error:
            failed.append(type(error).__name__)
            raise

    client = Served(serve)
    await client.send(headers(1, POST, end=False), data(1, b"abc"))
    client.wire.end()
    await client.send()
    assert failed == ["BodyBrokenOff"]
    assert client.wire.closed


async def test_streams_of_a_client_that_said_goaway_are_answered() -> None:
    gate = Gate()
    client = Served(gate)
    await client.send(headers(1), headers(3, head("/b")), frames.goaway())
    gate.release("/a", "/b")
    assert sorted(ended(await client.send())) == [1, 3]


async def test_many_streams_leave_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = Served(at_once)
    tasks = asyncio.all_tasks()

    async def some(begin: int) -> None:
        for number in range(begin, begin + 1_000, 2):
            client.wire.send(headers(number, POST, end=False), data(number, b"abc", end=True))
        await client.send()
        client.wire.got = b""
        client.forget()

    await some(1)
    tracemalloc.start()
    try:
        for begin in range(1_001, 6_001, 1_000):
            await some(begin)
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 200_000
    assert asyncio.all_tasks() == tasks
    assert not caplog.records
