"""What a connection holds, whom it lets go first, and when it knows that the other side is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sidecar.postgres import frontend
from sidecar.postgres.connection import BUFFER_BYTES, ConnectionLost, FramedConnection
from sidecar.postgres.frames import from_agent
from sidecar.postgres.payload import message
from tests.support.waiting import until_async

SECONDS = 5.0
ONE_READ = 256 * 1024
"""The most bytes that a read under way may bring, with uvloop."""
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FramedConnection, Peer]]:
    """Yield a connection, and the other side's socket."""
    loop = asyncio.get_running_loop()
    made: list[FramedConnection] = []

    def make() -> FramedConnection:
        made.append(FramedConnection(from_agent()))
        return made[0]

    server = await loop.create_server(make, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await until_async("it is accepted", lambda: made)
    try:
        yield made[0], (reader, writer)
    finally:
        writer.close()
        made[0].abort()
        server.close()
        await made[0].lost


async def test_no_more_is_read_ahead_than_the_buffer_holds() -> None:
    async with connected() as (connection, (_, writer)):
        part = message(b"d", b"x" * 9_000)
        count = (4 << 20) // len(part)
        writer.write(part * count)
        await until_async("the buffer is full", lambda: connection.received >= BUFFER_BYTES)
        await asyncio.sleep(0.05)
        assert connection.received < BUFFER_BYTES + ONE_READ
        for _ in range(count):
            assert (await connection.read()).raw == part
        assert connection.received == count * len(part)


async def test_a_message_longer_than_the_buffer_arrives() -> None:
    async with connected() as (connection, (_, writer)):
        sent = frontend.query(b"x" * (1 << 20))
        writer.write(frontend.SYNC + sent + frontend.SYNC)
        kinds = [(await connection.read()).kind for _ in range(3)]
        assert kinds == [b"S", b"Q", b"S"]


async def test_a_flood_of_small_messages_leaves_turns_to_others() -> None:
    async with connected() as (connection, (_, writer)):
        writer.write(frontend.SYNC * 10_000)
        await until_async("they have arrived", lambda: connection.received >= 50_000)
        turns, over = 0, False

        async def other() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(other())
        for _ in range(10_000):
            await connection.read()
        over = True
        await task
        assert turns > 100


async def test_a_loss_is_noticed_while_nothing_is_read() -> None:
    async with connected() as (connection, (_, writer)):
        writer.write(frontend.SYNC)
        writer.close()
        async with asyncio.timeout(SECONDS):
            await connection.lost
        # What arrived before can still be read.
        assert (await connection.read()).kind == b"S"
        with pytest.raises(ConnectionLost):
            await connection.read()
        with pytest.raises(ConnectionLost):
            await connection.drain(SECONDS)


async def test_a_loss_is_noticed_behind_a_full_buffer() -> None:
    async with connected() as (connection, (_, writer)):
        # The event loop reads no further, and doesn't see the end.
        writer.write(frontend.SYNC * 20_000)
        await until_async("the buffer is full", lambda: connection.received >= BUFFER_BYTES)
        assert not connection.lost.done()
        writer.close()
        async with asyncio.timeout(SECONDS):
            await connection.lost


async def test_a_slow_reader_holds_the_writer_back() -> None:
    async with connected() as (connection, (reader, _)):
        sent = 0
        while not connection.writing_paused:
            connection.write(b"x" * 100_000)
            sent += 100_000
        with pytest.raises(TimeoutError):
            await connection.drain(0.01)
        draining = asyncio.get_running_loop().create_task(connection.drain(SECONDS))
        await reader.readexactly(sent)
        await draining
        assert connection.sent == sent


async def test_a_reader_that_leaves_ends_the_wait_for_it() -> None:
    async with connected() as (connection, (_, writer)):
        while not connection.writing_paused:
            connection.write(b"x" * 100_000)
        draining = asyncio.get_running_loop().create_task(connection.drain(SECONDS))
        await asyncio.sleep(0)
        writer.transport.abort()
        with pytest.raises(ConnectionLost):
            await draining


async def test_a_reader_that_is_cancelled_loses_no_frame() -> None:
    async with connected() as (connection, (_, writer)):
        queries = [frontend.query(b"%d" % number) for number in range(500)]
        writer.write(b"".join(queries))
        found: list[bytes] = []

        async def read_all() -> None:
            while len(found) < len(queries):
                found.append((await connection.read()).raw)

        while len(found) < len(queries):
            reading = asyncio.get_running_loop().create_task(read_all())
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            await asyncio.sleep(0)
        assert found == queries
