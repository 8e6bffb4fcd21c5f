"""A server that stops while its connection stays open keeps no request but those that it has, and
none if it stops within a frame."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sidecar.http.client.pool import Carrier, Pool
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.messages.response_parser import BadResponse
from tests.sidecar.http.client.served_http2 import ask, begun, served
from tests.sidecar.http.http2 import frames
from tests.support.http2_source import Call, Http2Source, Served
from tests.support.loop_clock import LoopClock, moving_clock
from tests.support.waiting import PATIENCE, turns, until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_a_frame_is_under_way_until_its_last_byte"
)


@asynccontextmanager
async def stalling() -> AsyncIterator[tuple[LoopClock, Pool, Http2Source]]:
    """A server that answers nothing on its first connection by itself."""

    async def script(call: Call) -> None:
        if call.connection is not source.connections[0]:
            await call.answer()

    with moving_clock() as clock:
        async with served(script) as (pool, source):
            yield clock, pool, source


def sizes(source: Http2Source) -> list[int]:
    """The number of requests on each connection."""
    return [len(each.calls) for each in source.connections]


async def answered(pool: Pool) -> bool:
    """Whether another request gets its answer, and waits behind no stopped server."""
    async with asyncio.timeout(PATIENCE):
        return (await ask(pool))[1] == b"ok"


async def whole(carrier: Carrier) -> bytes:
    """The body of a response."""
    message, body = await carrier.response(), b""
    while part := await message.body.next(5):
        body += part
    return body


RESPONSE = frames.headers(1, [(b":status", b"200")], end=False)
STOPS = {
    "in DATA": RESPONSE + frames.data(1, bytes(16_384))[:-1],
    "in the head of a frame": RESPONSE + frames.data(1)[:1],
    "behind the head of a frame": frames.data(1, b"x")[:9],
    "in PING": frames.ping()[:-1],
    "in an unknown frame": frames.frame(frames.UNKNOWN, payload=b"x")[:-1],
    "in HEADERS": RESPONSE[:-1],
    "before CONTINUATION": frames.headers(1, [(b":status", b"200")], flags=0),
}


@pytest.mark.parametrize("where", STOPS)
async def test_a_server_that_stops_within_a_frame_loses_the_connection(where: str) -> None:
    async with stalling() as (clock, pool, source):
        stuck = [await begun(pool) for _ in range(2)]
        await until_async("they have arrived", lambda: len(source.calls) == 2)
        source.connections[0].silent = True
        source.connections[0].writer.write(STOPS[where])
        await turns(50)
        await clock.skip(4)
        stuck.append(await begun(pool))
        await clock.skip(2)
        assert await answered(pool)
        assert sizes(source) == [3, 1], "others don't wait behind it"
        await clock.skip(2)
        assert not source.connections[0].over.is_set()
        await clock.skip(8)
        await clock.skip(8)
        await until_async("it is broken off", source.connections[0].over.is_set)
        for each in stuck:
            with pytest.raises(BadResponse, match="longer than 15 s"):
                await whole(each)
            pool.discard(each)
        assert await answered(pool)
        assert pool.connections == 1


async def test_a_frame_that_arrives_slowly_is_not_broken_off() -> None:
    async with stalling() as (clock, pool, source):
        carrier = await begun(pool)
        await until_async("it has arrived", lambda: source.calls)
        [served_one] = source.connections
        body = bytes(range(256)) * 64
        sent = RESPONSE + frames.data(1, body, end=True)
        for at in range(0, len(sent), 4_000):
            served_one.writer.write(sent[at : at + 4_000])
            await turns(20)
            await clock.skip(2.5)
        assert await whole(carrier) == body
        pool.release(carrier)
        pool.discard(await begun(pool))
        await until_async("it carries requests again", lambda: sizes(source) == [2])


async def test_requests_don_t_join_one_that_the_server_leaves_unanswered() -> None:
    async with stalling() as (clock, pool, source):
        slow = [await begun(pool)]
        await clock.skip(4)
        slow.append(await begun(pool))
        await clock.skip(2)
        assert await answered(pool)
        await until_async("all have arrived", lambda: sizes(source) == [2, 1])
        # It may be slow: as over HTTP/1.1, a request waits as long as its agent does.
        for _ in range(20):
            await clock.skip(8)
        for call, carrier in zip(source.connections[0].calls.values(), slow, strict=True):
            await call.answer()
            assert (await carrier.response()).status == 200
            pool.release(carrier)
        pool.discard(await begun(pool))
        await until_async("it is used again", lambda: sizes(source)[0] == 3)


async def test_agents_that_soon_give_up_don_t_each_meet_a_stopped_server() -> None:
    async with stalling() as (clock, pool, source):
        for _ in range(3):
            carrier = await begun(pool)
            await clock.skip(2)
            pool.discard(carrier)
        assert await answered(pool)
        assert sizes(source) == [3, 1]
        await clock.skip(8)
        assert await answered(pool)
        await clock.skip(8)
        await until_async("it has ended", source.connections[0].over.is_set)
        assert pool.connections == 1


@pytest.mark.parametrize("bodies", [1, 2])
async def test_a_server_that_gives_a_connection_no_credit_stops_no_later_request(
    bodies: int,
) -> None:
    upload = UpstreamRequest("POST", "/a", b"", body=bytes(60_000))
    async with stalling() as (clock, pool, source):
        source.credits = False
        stuck = [await begun(pool, upload) for _ in range(bodies + 1)]
        first = source.connections[0]
        await until_async("its credit is spent", lambda: held(first) == 65_535)
        for _ in range(4):
            assert not first.over.is_set()
            # Others are answered there, so that it is not silent.
            first.writer.write(frames.ping())
            await turns(20)
            await clock.skip(7)
            assert await answered(pool)
            assert len(first.calls) == bodies + 1
        if bodies == 1:  # the first one has been sent
            for _ in range(3):
                await clock.skip(8)
            assert not first.over.is_set()
            [call, other] = first.calls.values()
            first.h2.acknowledge_received_data(call.unread, call.stream)
            first.flush()
            await until_async("the other has been sent", other.ended.is_set)
        else:
            await clock.skip(8)
            for each in stuck:
                with pytest.raises(BadResponse, match="no credit"):
                    await each.response()
        for each in stuck:
            pool.discard(each)


def held(connection: Served) -> int:
    """The bytes of bodies for which the client has no credit."""
    return sum(each.unread for each in connection.calls.values())


async def test_a_response_that_pauses_keeps_its_connection_shared() -> None:
    async with stalling() as (clock, pool, source):
        events = await begun(pool)
        await until_async("it has arrived", lambda: source.calls)
        source.calls[0].begin()
        await events.response()
        for _ in range(5):
            await clock.skip(8)
        other = await begun(pool)
        await until_async("it has arrived", lambda: sizes(source) == [2])
        await source.calls[1].answer()
        assert (await other.response()).status == 200
        pool.discard(events)
        pool.discard(other)
