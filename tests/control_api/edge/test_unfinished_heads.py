"""What connections hold of requests that never begin: bytes of each head, bytes of all, places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from control_api.edge.sending import ReplyEncoder
from control_api.edge.server import ApiListener
from policies.ground.addresses import ListenAddress
from policies.ground.connection_budget import HEAD_TOO_LONG, HEADS_FULL, ConnectionBudget
from tests.support.waiting import PATIENCE, until_async

KIB = 1024
HEAD = b"GET /a HTTP/1.1\r\nHost: x\r\n"
FIELD = b"a: " + b"x" * 4000 + b"\r\n"


class Echo:
    """Answers every request with its path and the length of its body."""

    def __init__(self) -> None:
        self.new_request_id = lambda: "1"
        self.response = ReplyEncoder(lambda: 0).response
        self.served = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.served += 1
        return web.Response(text=f"{request.path} {len(await request.read())}")


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)

    async def response(self) -> bytes:
        """One response."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return head + await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """All that comes until the connection ends."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


class Port:
    def __init__(self, listener: ApiListener, echo: Echo) -> None:
        self._port, self.echo = listener.address.port, echo
        self._open: list[Client] = []

    async def client(self) -> Client:
        made = Client(*await asyncio.open_connection("127.0.0.1", self._port))
        self._open.append(made)
        return made

    def close(self) -> None:
        for each in self._open:
            each.writer.close()


@asynccontextmanager
async def listening(budget: ConnectionBudget) -> AsyncIterator[Port]:
    echo = Echo()
    address = ListenAddress("127.0.0.1", 0)
    listener = await ApiListener.open(address, "X", echo, [], None, budget)
    port = Port(listener, echo)
    try:
        yield port
    finally:
        port.close()
        await listener.drain(5)


async def test_a_head_beyond_its_limit_is_refused_though_each_line_is_within_its_own() -> None:
    budget = ConnectionBudget(100)
    async with listening(budget) as port:
        client = await port.client()
        client.send(HEAD, *[FIELD] * 16)
        await until_async("much of it has come", lambda: budget.head_bytes > 64_000)
        client.send(FIELD)
        assert await client.rest() == HEAD_TOO_LONG
        assert budget.head_bytes == 0
        # A whole one is refused as well, and one below the limit is not.
        client = await port.client()
        client.send(HEAD + FIELD * 17 + b"\r\n")
        assert await client.rest() == HEAD_TOO_LONG
        client = await port.client()
        client.send(HEAD, *[FIELD] * 15, b"\r\n")
        assert (await client.response()).endswith(b"/a 0")


async def test_unfinished_heads_hold_no_more_than_their_budget() -> None:
    budget = ConnectionBudget(100, 100 * KIB)
    async with listening(budget) as port:
        first, second = await port.client(), await port.client()
        first.send(HEAD, *[FIELD] * 14)
        await until_async("the head has come", lambda: budget.head_bytes > 50 * KIB)
        second.send(HEAD + FIELD * 14)
        assert await second.rest() == HEADS_FULL
        assert budget.head_bytes <= budget.head_limit
        assert budget.heads_refused == 1
        whole = await port.client()
        whole.send(HEAD + b"\r\n")
        assert (await whole.response()).endswith(b"/a 0")
        first.send(b"\r\n")
        assert (await first.response()).endswith(b"/a 0")
        assert budget.head_bytes == 0
        assert port.echo.served == 2


async def test_a_body_is_not_counted_as_a_head_however_it_arrives() -> None:
    budget = ConnectionBudget(100, 8 * KIB)
    body = b"x" * 300 * KIB
    async with listening(budget) as port:
        client = await port.client()
        post = b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        for pieces in ([post + body], [post[:-2], post[-2:] + body], [post, body[:9], body[9:]]):
            for piece in pieces:
                client.send(piece)
                await client.writer.drain()
                await asyncio.sleep(0)
            assert (await client.response()).endswith(b"/b %d" % len(body))
        client.send((HEAD + b"\r\n") * 3)
        for _ in range(3):
            assert (await client.response()).endswith(b"/a 0")
        assert (budget.head_bytes, budget.heads_refused) == (0, 0)


async def test_a_head_is_counted_until_its_connection_ends() -> None:
    budget = ConnectionBudget(100)
    async with listening(budget) as port:
        client = await port.client()
        client.send(HEAD)
        await until_async("the head has come", lambda: budget.head_bytes == len(HEAD))
        client.writer.close()
        await until_async("it is forgotten", lambda: budget.head_bytes == 0)


async def test_one_connection_too_many_is_closed_at_once() -> None:
    budget = ConnectionBudget(1)
    async with listening(budget) as port:
        first = await port.client()
        first.send(HEAD + b"\r\n")
        assert (await first.response()).endswith(b"/a 0")
        second = await port.client()
        assert await second.rest() == b""
        assert (budget.open, budget.refused) == (1, 1)
        first.writer.close()
        await until_async("its place is free", lambda: budget.open == 0)
        third = await port.client()
        third.send(HEAD + b"\r\n")
        assert (await third.response()).endswith(b"/a 0")


@pytest.mark.parametrize("cut", range(1, 5))
async def test_the_end_of_a_head_is_found_wherever_the_head_is_split(cut: int) -> None:
    budget = ConnectionBudget(100)
    async with listening(budget) as port:
        client = await port.client()
        whole = HEAD + b"\r\n"
        client.send(whole[:-cut])
        await until_async("the head has come", lambda: budget.head_bytes > 0)
        client.send(whole[-cut:])
        assert (await client.response()).endswith(b"/a 0")
        assert budget.head_bytes == 0
