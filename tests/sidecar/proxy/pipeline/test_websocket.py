"""WebSockets: the handshake is decided, and the connection is joined to a data source that granted
it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from policies.definitions.model import TenantSettings
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.raw_client import Answered, get, leave
from tests.support import waiting
from tests.support.proxy import (
    ProxySetup,
    Sidecar,
    listening,
    policy,
    proxy_setup,
    sidecar,
    source,
)
from tests.support.scripted_source import Seen, answer, scripted
from tests.support.waiting import until_async

ASK = (
    b"GET /a HTTP/1.1\r\nHost: kb\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
GRANTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


@asynccontextmanager
async def echoing(tmp_path: Path) -> AsyncIterator[tuple[str, Sidecar]]:
    """A real server that sends back what it is sent, and the address of its sidecar."""

    async def echo(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=1 << 25)
        await ws.prepare(request)
        async for message in ws:
            if message.type is WSMsgType.BINARY:
                await ws.send_bytes(message.data)
            else:
                await ws.send_str(message.data)
        return ws

    app = web.Application()
    app.router.add_get("/{path:.*}", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [(_, port, *_)] = runner.addresses
    closed = policy(denied_sources=("rest://kb/secret",))
    async with sidecar(tmp_path, closed) as made, listening(made, source(port)) as at:
        yield f"http://127.0.0.1:{at}", made
    await runner.cleanup()


async def test_a_real_client_and_a_real_server_do_not_notice(tmp_path: Path) -> None:
    async with echoing(tmp_path) as (address, made), aiohttp.ClientSession() as session:
        async with session.ws_connect(f"{address}/a", compress=15, max_msg_size=1 << 25) as ws:
            for data in (b"", b"x", b"y" * 70_000, bytes(range(256)) * 20_000):
                await ws.send_bytes(data)
                assert (await ws.receive()).data == data
            await ws.send_str("ä")
            assert (await ws.receive()).data == "ä"
            await ws.ping()
        assert await made.decisions() == [("ALLOW", "analysts-read", "rest://kb/a")]
        [lineage] = await made.lineage()
        assert (lineage["outcome"], lineage["detail"]["status"]) == ("completed", 101)
        assert lineage["detail"]["bytes"] > 0


async def test_a_denied_handshake_is_refused_and_never_reaches_the_data_source(
    tmp_path: Path,
) -> None:
    async with echoing(tmp_path) as (address, made), aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await session.ws_connect(f"{address}/secret")
        assert error.value.status == 403
        assert (await made.decisions())[0][::2] == ("DENY", "rest://kb/secret")


async def test_data_after_the_handshake_waits_until_the_data_source_accepts(
    setup: ProxySetup,
) -> None:
    got: list[bytes] = []
    go = asyncio.Event()

    async def slowly(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(GRANTED + b"first words")
        await writer.drain()
        await waiting.never()

    setup.upstream.script = slowly
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(ASK + b"optimistic")
    await until_async("the source has the request", lambda: bool(setup.upstream.seen))
    seen = setup.upstream.seen[0]
    assert seen.head.endswith(b"\r\n\r\n")
    assert b"optimistic" not in seen.head + seen.body
    assert seen.values("upgrade") == ["websocket"]
    assert seen.values("connection") == ["Upgrade"]
    go.set()
    head = await reader.readuntil(b"\r\n\r\n")
    assert Answered(head).status == 101
    assert Answered(head).fields["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert Answered(head).fields["x-sluice-event-id"]
    assert await reader.readexactly(11) == b"first words"
    leave(writer)
    await until_async("the source has lost the connection", lambda: setup.upstream.lost == 1)
    assert got == []


async def test_a_handshake_may_declare_an_empty_body(setup: ProxySetup) -> None:
    """As the JDK's client does."""
    setup.upstream.script = scripted(GRANTED)
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(ASK.replace(b"Host: kb", b"Host: kb\r\nContent-Length: 0"))
    assert Answered(await reader.readuntil(b"\r\n\r\n")).status == 101
    leave(writer)


@pytest.mark.parametrize("said", ["HTTP/1.1 200 OK", "HTTP/1.1 426 Upgrade Required"])
async def test_another_answer_is_relayed_and_data_after_the_handshake_dropped(
    setup: ProxySetup, said: str
) -> None:
    setup.upstream.script = answer(said, b"no")
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(ASK + get("/smuggled"))
    raw = await reader.read()
    writer.close()
    assert raw.startswith(said.encode())
    assert raw.endswith(b"no")
    assert b"\r\nConnection: close\r\n" in raw
    assert raw.count(b"HTTP/1.1 ") == 1
    assert setup.upstream.targets == ["/a"]
    assert len(await setup.sidecar.decisions()) == 1


@pytest.mark.parametrize(
    "changed",
    [
        (b"Upgrade: websocket", b"Upgrade: websocket, h2c"),
        (b"Upgrade: websocket", b"Upgrade: h2c, websocket"),
        (b"Upgrade: websocket", b"Upgrade: h2c\r\nUpgrade: websocket"),
        (b"Upgrade: websocket", b"Upgrade: websocket\r\nUpgrade: h2c"),
        (b"keep-alive, Upgrade", b"keep-alive"),
        (b"GET ", b"POST "),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"Host: kb", b"Host: kb\r\nContent-Length: 2"),
        (b"Host: kb", b"Host: kb\r\nContent-Length: 00"),
        (b"Host: kb", b"Host: kb\r\nTransfer-Encoding: chunked"),
    ],
)
async def test_every_other_form_is_refused(setup: ProxySetup, changed: tuple[bytes, bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(ASK.replace(*changed) + get("/smuggled"))
    raw = await reader.read()
    writer.close()
    assert raw.startswith(b"HTTP/1.1 400 ")
    assert raw.count(b"HTTP/1.1 ") == 1
    assert await setup.sidecar.decisions() == [("DENY", "unreadable_request", "rest://kb")]
    assert setup.upstream.begun == []


@pytest.mark.parametrize(
    "said",
    [
        GRANTED.replace(b"Upgrade: websocket", b"Upgrade: h2c"),
        GRANTED.replace(b"Upgrade: websocket\r\n", b""),
        b"HTTP/1.1 101 Switching Protocols\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
        b"HTTP/1.1 101 Sw",
    ],
)
async def test_an_invalid_acceptance_is_answered_with_502_naming_the_source(
    setup: ProxySetup, said: bytes
) -> None:
    async def says(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()

    setup.upstream.script = says
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(ASK)
    raw = await reader.read()
    writer.close()
    assert raw.startswith(b"HTTP/1.1 502 ")
    assert b"the data source `kb` " in raw
    [lineage] = await setup.sidecar.lineage()
    assert lineage["outcome"] == "failed"


async def test_an_acceptance_in_pieces_is_valid(setup: ProxySetup) -> None:
    async def slowly(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        for at in range(len(GRANTED)):
            writer.write(GRANTED[at : at + 1])
            await writer.drain()
            await waiting.turns()
        writer.write(b"words")
        await waiting.never()

    setup.upstream.script = slowly
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(ASK)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    assert await reader.readexactly(5) == b"words"
    leave(writer)


@pytest.mark.parametrize("why", ["key_not_valid", "tenant_frozen"])
async def test_a_revocation_or_a_freeze_ends_an_open_websocket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    # expires on purpose
    limits = replace(LIMITS, reauthorize_seconds=0.1)
    async with proxy_setup(tmp_path, policy(), limits=limits) as setup:

        async def grants(_seen: Seen, writer: asyncio.StreamWriter) -> None:
            writer.write(GRANTED)
            await writer.drain()
            await waiting.never()

        setup.upstream.script = grants
        reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        writer.write(ASK)
        await reader.readuntil(b"\r\n\r\n")
        if why == "tenant_frozen":
            setup.sidecar.publish(TenantSettings("ten_1", frozen_at=1))
        else:
            monkeypatch.setattr(type(setup.sidecar.agent), "key", lambda _: None)
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(20):
                await reader.read()
        writer.close()
        await until_async("the source has lost the connection", lambda: setup.upstream.lost == 1)
        names = [name for _, name, _ in await setup.sidecar.decisions()]
        assert names == ["analysts-read", why]
        [lineage] = await setup.sidecar.lineage()
        assert lineage["outcome"] == "truncated"
