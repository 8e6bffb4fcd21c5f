"""Connections of HTTP/2 are opened, shared, left and ended, and requests that a server did not read
are known."""

import asyncio
import socket

import pytest

from sidecar.http.client.dialler import AddressInfo, Destination
from sidecar.http.client.egress_guard import EgressGuard, LoopGuard
from sidecar.http.client.pool import Pool
from sidecar.http.messages.body import ConnectionLost
from tests.sidecar.http.client.served_http2 import (
    GET,
    LIMITS,
    REFUSED,
    ask,
    begun,
    pool_of,
    served,
)
from tests.support.http2_source import Call, http2_source
from tests.support.loop_clock import moving_clock
from tests.support.waiting import turns, until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/http/client/test_http2.py::test_requests_share_a_connection"
)


class Held:
    """A script that answers once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        await self.go.wait()
        await call.answer()


async def test_a_request_beyond_the_most_of_a_connection_opens_another_and_then_waits() -> None:
    held = Held()
    async with served(held) as (pool, source):
        tasks = [asyncio.ensure_future(ask(pool)) for _ in range(100)]
        await until_async("all have begun", lambda: len(source.calls) == 100)
        assert len(source.connections) == 1
        tasks.append(asyncio.ensure_future(ask(pool)))
        await until_async("another connection", lambda: len(source.calls) == 101)
        assert [len(each.calls) for each in source.connections] == [100, 1]
        tasks += [asyncio.ensure_future(ask(pool)) for _ in range(250)]
        await until_async("the limit", lambda: len(source.calls) == 300)
        await turns(100)
        assert (len(source.calls), pool.connections) == (300, 3)
        held.go.set()
        assert [body for _, body in await asyncio.gather(*tasks)] == [b"ok"] * 351
        assert len(source.connections) == 3


async def test_a_server_may_take_fewer_requests_at_once() -> None:
    held = Held()
    async with served(held, streams=2) as (pool, source):
        tasks = [asyncio.ensure_future(ask(pool)) for _ in range(9)]
        await until_async("as many as fit have begun", lambda: len(source.calls) == 6)
        await turns(50)
        assert [len(each.calls) for each in source.connections] == [2, 2, 2]
        held.go.set()
        assert [body for _, body in await asyncio.gather(*tasks)] == [b"ok"] * 9


async def test_a_request_waits_for_a_stream_as_long_as_for_a_connection() -> None:
    held = Held()
    limits = LIMITS._replace(connections=1, connect_seconds=0.2)
    async with served(held, limits, streams=1) as (pool, _source):
        first = await begun(pool)
        with pytest.raises(TimeoutError):
            await pool.connect()
        waiting = asyncio.ensure_future(pool.connect())
        await turns()
        waiting.cancel()
        pool.discard(first)
        second = await pool.connect()
        third = asyncio.ensure_future(pool.connect())
        await turns()
        pool.discard(second)  # it served no request yet
        third.cancel()  # as it is served
        await turns()
        pool.discard(await pool.connect())


async def test_an_unreachable_server_fails_all_that_wait() -> None:
    async with served() as (pool, source):
        pass
    pool = pool_of(source.port)
    tried = await asyncio.gather(*[pool.connect() for _ in range(5)], return_exceptions=True)
    assert [type(each) for each in tried] == [ConnectionRefusedError] * 5
    assert pool.connections == 0


async def test_a_refused_request_counts_as_unread() -> None:
    async with served(_refuses) as (pool, source):
        carrier = await begun(pool)
        with pytest.raises(ConnectionLost):
            await carrier.response()
        assert carrier.unread
        pool.discard(carrier)
        assert len(source.connections) == 1


async def _refuses(call: Call) -> None:
    call.refuse(REFUSED)


async def test_a_connection_that_goes_away_finishes_what_it_read_and_takes_nothing_new() -> None:
    go = asyncio.Event()

    async def script(call: Call) -> None:
        if call.target == "/new":
            await call.answer()
            return
        if call.stream == 5:
            call.connection.go_away(3)
        await go.wait()
        if call.stream < 5:
            await call.answer()

    async with served(script) as (pool, source):
        old = [await begun(pool) for _ in range(3)]
        with pytest.raises(ConnectionLost):
            await old[2].response()
        assert [each.unread for each in old] == [False, False, True]
        assert (await ask(pool, GET._replace(target="/new")))[1] == b"ok"
        assert [len(each.calls) for each in source.connections] == [3, 1]
        go.set()
        for each in old[:2]:
            message = await each.response()
            assert await message.body.next(5) == b"ok"
            pool.release(each)
        pool.discard(old[2])
        await until_async("it has ended", source.connections[0].over.is_set)
        assert pool.connections == 1


async def test_a_connection_that_the_server_closes_while_idle_is_not_used_again() -> None:
    async with served() as (pool, source):
        assert (await ask(pool))[1] == b"ok"
        source.connections[0].writer.close()
        await until_async("it is noticed", lambda: not pool.connections)
        assert (await ask(pool))[1] == b"ok"
        assert len(source.connections) == 2


async def test_a_request_on_a_connection_that_ends_meanwhile_is_unheard_and_not_unread() -> None:
    async def script(call: Call) -> None:
        if call.stream == 1:
            await call.answer()
        else:
            call.connection.writer.transport.abort()

    async with served(script) as (pool, _source):
        assert (await ask(pool))[1] == b"ok"
        await turns()
        carrier = await begun(pool)
        with pytest.raises(ConnectionLost):
            await carrier.response()
        assert (carrier.unheard, carrier.unread) == (True, False)
        pool.discard(carrier)


async def test_an_idle_connection_is_ended_after_a_while() -> None:
    with moving_clock() as clock:
        async with served() as (pool, source):
            assert (await ask(pool))[1] == b"ok"
            await clock.skip(8)
            assert pool.connections == 1
            await clock.skip(8)
            await until_async("it has ended", source.connections[0].over.is_set)
            assert pool.connections == 0


class NotingGuard(EgressGuard):
    """Keeps the sockets that it allows in `made`."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", (), LoopGuard(), lambda _: None, lambda: 0.0)
        self.made: list[socket.socket] = []

    def socket(self, info: AddressInfo) -> socket.socket:
        self.made.append(super().socket(info))
        return self.made[-1]


async def test_the_system_notices_a_server_that_is_gone_without_a_word() -> None:
    guard = NotingGuard()
    async with http2_source() as source:
        pool = Pool(Destination("127.0.0.1", source.port), guard, LIMITS, "2")
        assert (await ask(pool))[1] == b"ok"
        [sock] = guard.made
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000
        pool.close()
        guard.made.clear()
