"""Connections are kept, shared and limited, and never carry what belongs to another request."""

import asyncio
import gc
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from sidecar.http.client import dialler
from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.client.dialler import ClientLimits, Destination
from sidecar.http.client.egress_guard import AddressRefused, EgressGuard, LoopGuard
from sidecar.http.client.pool import Pool
from sidecar.http.messages.body import ConnectionLost
from sidecar.http.messages.request_parser import HeadLimits
from tests.support import waiting
from tests.support.loop_clock import LoopClock
from tests.support.ports import free_port

LIMITS = ClientLimits(HeadLimits(1000, 1000, 20), 1000, 2, 5.0, 15.0)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each head with `answer`."""

    def __init__(self) -> None:
        self.answer = ANSWER
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def pool_of(port: int, limits: ClientLimits = LIMITS) -> Pool:
    guard = EgressGuard("127.0.0.1", (), LoopGuard(), lambda _: None, lambda: 0.0)
    return Pool(Destination("127.0.0.1", port), guard, limits)


@asynccontextmanager
async def served(limits: ClientLimits = LIMITS) -> AsyncIterator[tuple[Pool, Server]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    pool = pool_of(listening.sockets[0].getsockname()[1], limits)
    try:
        yield pool, server
    finally:
        pool.close()
        listening.close()


async def connect(pool: Pool) -> UpstreamConnection:
    connection = await pool.connect()
    assert isinstance(connection, UpstreamConnection)
    return connection


async def ask(connection: UpstreamConnection) -> bytes:
    connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    response = await connection.response()
    return await response.body.next(5)


async def test_the_connection_that_was_used_last_is_used_again() -> None:
    async with served() as (pool, server):
        first, second = await connect(pool), await connect(pool)
        assert [await ask(first), await ask(second)] == [b"ok", b"ok"]
        pool.release(first)
        pool.release(second)
        assert pool.take() is second
        assert (second.reused, second.received_any) == (True, False)
        assert await ask(second) == b"ok"
        assert pool.take() is first
        assert pool.take() is None
        assert len(server.writers) == 2


async def test_a_request_beyond_the_limit_gets_the_next_free_connection_in_turn() -> None:
    async with served() as (pool, server):
        first, second = await connect(pool), await connect(pool)
        assert await ask(first) == b"ok"
        got: list[str] = []

        async def wait(name: str) -> UpstreamConnection:
            connection = await connect(pool)
            got.append(name)
            return connection

        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(wait(name)) for name in "abcd"]
        await waiting.turns()
        tasks[0].cancel()
        pool.release(first)
        assert await tasks[1] is first
        assert got == ["b"]
        pool.discard(second)  # one slot lets exactly one of them in
        third = await tasks[2]
        await waiting.turns()
        assert (third.reused, got, pool.connections) == (False, ["b", "c"], 2)
        pool.discard(first)
        await tasks[3]
        assert (got, pool.connections, len(server.writers)) == (["b", "c", "d"], 2, 4)


async def test_a_request_cancelled_as_it_is_served_passes_its_turn_to_the_next() -> None:
    async with served() as (pool, _):
        first, second = await connect(pool), await connect(pool)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(connect(pool)) for _ in range(3)]
        await waiting.turns()
        assert await ask(first) == b"ok"
        pool.release(first)
        tasks[0].cancel()
        assert await tasks[1] is first
        pool.discard(second)
        tasks[2].cancel()
        await waiting.turns()
        assert pool.connections == 1, "a slot that nothing waits for is free"
        assert await connect(pool) is not first


async def test_requests_that_gave_up_waiting_hold_nothing_up() -> None:
    async with served() as (pool, _):
        taken = [await connect(pool), await connect(pool)]
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(connect(pool)) for _ in range(2)]
        await waiting.turns()
        for task in tasks:
            task.cancel()
        await waiting.turns()
        assert await ask(taken[0]) == b"ok"
        pool.release(taken[0])
        assert pool.take() is taken[0], "it is kept for later requests"
        for connection in taken:
            pool.discard(connection)
        assert pool.connections == 0
        await connect(pool)


def reachable(root: object) -> list[object]:
    """What an object holds, but through code and the event loop."""
    closed = type, types.ModuleType, types.FunctionType, asyncio.AbstractEventLoop
    seen: dict[int, object] = {}
    left = [root]
    while left:
        each = left.pop()
        if id(each) not in seen and not isinstance(each, closed):
            seen[id(each)] = each
            left += gc.get_referents(each)
    return list(seen.values())


async def test_an_idle_connection_keeps_nothing_of_its_last_response() -> None:
    async with served() as (pool, server):
        server.answer = ANSWER.replace(b"\r\n", b"\r\nSet-Cookie: secret\r\n", 1)
        connection = await connect(pool)
        assert await ask(connection) == b"ok"
        pool.release(connection)
        held = [each for each in reachable(connection) if isinstance(each, bytes | bytearray)]
        assert not [each for each in held if b"secret" in each]


async def test_an_idle_connection_makes_room_for_a_new_one() -> None:
    async with served() as (pool, _):
        kept = [await connect(pool), await connect(pool)]
        for connection in kept:
            pool.release(connection)
        assert await connect(pool) not in kept
        assert pool.take() is kept[1], "the one that was idle longest had to go"


async def test_waiting_and_dialling_are_limited_by_the_time_for_a_connection(
    clock: LoopClock,
) -> None:
    async with served(LIMITS._replace(connect_seconds=600)) as (pool, _):
        taken = [await connect(pool), await connect(pool)]
        late = asyncio.get_running_loop().create_task(pool.connect())
        await clock.skip(500)
        assert not late.done()
        await clock.skip(200)
        with pytest.raises(TimeoutError):
            await late
        for connection in taken:
            pool.discard(connection)
        assert pool.connections == 0


async def test_a_connection_that_can_not_be_opened_takes_no_slot() -> None:
    pool = pool_of(free_port())
    for _ in range(5):
        with pytest.raises(ConnectionRefusedError):
            await connect(pool)
    assert pool.connections == 0


async def test_idle_connections_are_closed_after_a_while() -> None:
    async with served(LIMITS._replace(idle_seconds=0.05)) as (pool, _):
        pool.release(await connect(pool))
        await waiting.until_async("closed", lambda: pool.connections == 0)
        assert pool.take() is None


@pytest.mark.parametrize("unasked", [b"\r\n", b"H", ANSWER])
@pytest.mark.parametrize("when", ["idle", "before the first request", "with the response"])
async def test_unrequested_data_is_never_the_next_response(when: str, unasked: bytes) -> None:
    async with served() as (pool, server):
        connection = await connect(pool)
        await waiting.until_async("accepted", lambda: bool(server.writers))
        if when == "with the response":
            server.answer += unasked
        if when != "before the first request":
            assert await ask(connection) == b"ok"
            pool.release(connection)
        if when != "with the response":
            server.writers[0].write(unasked)
            await waiting.turns(50)
        assert pool.take() is None
        with pytest.raises(ConnectionLost):
            connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_connection_that_the_server_ended_is_not_used_again(how: str) -> None:
    async with served() as (pool, server):
        connection = await connect(pool)
        assert await ask(connection) == b"ok"
        pool.release(connection)
        writer = server.writers[0]
        if how == "close":
            writer.close()
        else:
            writer.transport.abort()
        await waiting.turns(50)
        assert pool.take() is None
        assert pool.connections == 0


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nok", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", False),
    ],
)
@pytest.mark.parametrize("reset", [False, True])
async def test_only_an_orderly_end_may_be_the_end_of_a_body(
    answer: bytes, whole: bool, reset: bool
) -> None:
    async with served() as (pool, server):
        server.answer = answer
        connection = await connect(pool)
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        body = (await connection.response()).body
        assert await body.next(5) == b"ok"
        if reset:
            # Bytes that are not read make the system send a reset.
            server.writers[0].transport.pause_reading()  # type: ignore[attr-defined]
            connection.send_part(b"x" * 100)
            await waiting.turns(50)
            server.writers[0].transport.abort()
        else:
            server.writers[0].close()
        if whole and not reset:
            assert await body.next(5) == b""
        else:
            with pytest.raises(ConnectionLost):
                await body.next(5)
        pool.release(connection)
        assert pool.connections == 0


async def test_a_slow_reader_pauses_the_server() -> None:
    size = 8 * 1024 * 1024
    async with served() as (pool, server):
        server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
        connection = await connect(pool)
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        body = (await connection.response()).body
        await waiting.turns(50)
        held = body.total_bytes
        assert held < size // 2
        await waiting.turns(50)
        assert body.total_bytes == held, "nothing more is read"
        while await body.next(5):
            pass
        assert body.total_bytes == size
        pool.release(connection)
        assert pool.take() is connection


@contextmanager
def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> Iterator[list[str]]:
    asked: list[str] = []
    left = list(answers)

    async def resolve(host: str, port: int) -> list[dialler.AddressInfo]:
        asked.append(host)
        await asyncio.sleep(0)
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(2, 1, 0, "", (each, port)) for each in found]

    monkeypatch.setattr(dialler, "resolve", resolve)
    yield asked


async def test_names_are_resolved_once_in_a_while_and_always_guarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (_, server):
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        refused: list[str] = []
        guard = EgressGuard("kb.test", ("127.0.0.1/32",), LoopGuard(), refused.append, lambda: 0.0)
        pool = Pool(Destination("kb.test", port), guard, LIMITS)
        with resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]) as asked:
            await asyncio.gather(pool.connect(), pool.connect())
            assert asked == ["kb.test"]
            other = Pool(Destination("kb.test", port), guard, LIMITS)
            with pytest.raises(AddressRefused):
                await other.connect()
            assert refused == ["loopback"]
            assert other.connections == 0
        pool.close()
        listening.close()
