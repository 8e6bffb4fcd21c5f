"""Two joined connections: bytes, ends, losses, and no memory for what the other side doesn't
take."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sidecar.proxy.connections import Ended, Splice
from tests.sidecar.proxy.raw_client import leave

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    one.setblocking(False)
    other.setblocking(False)
    return one, other


@asynccontextmanager
async def joined(
    idle: float = 30, seen: list[bytes] | None = None
) -> AsyncIterator[tuple[Pair, Pair, Splice]]:
    """An agent and a data source, and what comes of the splice between them."""
    loop = asyncio.get_running_loop()
    agent, inside = tcp_pair()
    outside, upstream = tcp_pair()
    first, _ = await loop.create_connection(asyncio.Protocol, sock=inside)
    second, _ = await loop.create_connection(asyncio.Protocol, sock=outside)
    splice = Splice(first, second, idle, None if seen is None else seen.append)
    first.set_protocol(splice.up)
    second.set_protocol(splice.down)
    pairs = await asyncio.open_connection(sock=agent), await asyncio.open_connection(sock=upstream)
    try:
        yield *pairs, splice
    finally:
        splice.abort()
        for _, writer in pairs:
            writer.close()


async def test_bytes_pass_both_ways_and_are_counted() -> None:
    seen: list[bytes] = []
    async with joined(seen=seen) as (agent, upstream, splice):
        agent[1].write(b"ask")
        assert await upstream[0].readexactly(3) == b"ask"
        upstream[1].write(b"answer")
        assert await agent[0].readexactly(6) == b"answer"
        agent[1].write_eof()
        upstream[1].write_eof()
        await splice.finished
        assert (splice.how, splice.up.count, splice.down.count) == (Ended.BOTH, 3, 6)
        assert seen == [b"answer"]


async def test_a_half_closed_agent_gets_its_answer() -> None:
    async with joined() as (agent, upstream, splice):
        agent[1].write(b"ask")
        agent[1].write_eof()
        assert await upstream[0].read() == b"ask"
        upstream[1].write(b"answer")
        upstream[1].write_eof()
        assert await agent[0].read() == b"answer"
        await splice.finished
        assert splice.how is Ended.BOTH


@pytest.mark.parametrize("side", [0, 1])
async def test_a_lost_connection_is_not_taken_for_an_end(side: int) -> None:
    async with joined() as (agent, upstream, splice):
        agent[1].write(b"ask")
        await upstream[0].readexactly(3)
        leave((agent, upstream)[side][1])
        await splice.finished
        assert splice.how is Ended.LOST
        with pytest.raises(ConnectionResetError):
            await (upstream, agent)[side][0].read()


async def test_a_connection_idle_for_long_is_ended() -> None:
    async with joined(idle=0.2) as (agent, _, splice):
        agent[1].write(b"ask")
        async with asyncio.timeout(20):
            await splice.finished
        assert splice.how is Ended.IDLE


async def test_data_that_is_not_read_by_one_side_is_not_taken_from_the_other() -> None:
    async with joined() as (agent, upstream, splice):
        part = os.urandom(1 << 16)
        written = 0
        for _ in range(400):
            agent[1].write(part)
            written += len(part)
            try:
                # expires on purpose
                async with asyncio.timeout(0.3):
                    await agent[1].drain()
            except TimeoutError:
                break
        else:
            raise AssertionError("25 MiB were read that the other side did not take")
        assert written < 20 << 20  # most of it in the buffers of the system
        got = bytearray()
        while len(got) < written:
            got += await upstream[0].read(1 << 20)
        assert got == part * (written // len(part))
        agent[1].write_eof()
        upstream[1].write_eof()
        await splice.finished
        assert splice.up.count == written


async def test_an_abort_breaks_both_connections() -> None:
    async with joined() as (agent, upstream, splice):
        splice.abort()
        for reader, _ in (agent, upstream):
            with pytest.raises(ConnectionResetError):
                await reader.read()
