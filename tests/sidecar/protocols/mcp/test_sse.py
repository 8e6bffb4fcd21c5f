"""The older transport (HTTP+SSE), which a setting opens: messages are judged as ever, and what is
on the stream is filtered as ever."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp import ClientSession, MCPError
from mcp.client.sse import sse_client

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.mcp.methods import SseSessions
from tests.sidecar.protocols.mcp import server
from tests.sidecar.protocols.mcp.server import listening_server
from tests.sidecar.protocols.mcp.wire import CALL, Said, Wire, request, wired
from tests.sidecar.proxy.raw_client import Answered, ask, get
from tests.support.proxy import Sidecar, listening, policy, sidecar, source
from tests.support.scripted_source import Seen
from tests.support.waiting import until_async

ALLOWED = policy(
    allowed_sources=(
        "mcp://kb/tool/weather",
        "mcp://kb/tool/gathered",
        "mcp://kb/resource/file:///docs/open*",
    )
)


@pytest.fixture(scope="module")
def upstream() -> Iterator[int]:
    with listening_server(server.made().sse_app()) as port:
        yield port


@asynccontextmanager
async def session(upstream: int, tmp_path: Path) -> AsyncIterator[tuple[ClientSession, Sidecar]]:
    """The SDK's client, through a sidecar."""
    async with (
        sidecar(tmp_path, ALLOWED) as made,
        listening(made, source(upstream, "mcp", sse="on")) as port,
        sse_client(f"http://127.0.0.1:{port}/sse") as (reading, writing),
        ClientSession(reading, writing, read_timeout_seconds=10) as client,
    ):
        await client.initialize()
        yield client, made


async def test_a_client_of_the_older_transport_is_governed(upstream: int, tmp_path: Path) -> None:
    async with session(upstream, tmp_path) as (client, made):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert sorted(tools) == ["gathered", "weather"]
        found: Any = await client.call_tool("weather", {"city": "Ulm"})
        assert found.content[0].text == "sunny in Ulm"
        with pytest.raises(MCPError) as caught:
            await client.call_tool("payroll", {"month": "May"})
        assert caught.value.error.code == -32001
        assert caught.value.error.data["decision"] == "DENY"
        # The session goes on.
        gathered = await client.call_tool("gathered")
        assert "open.txt" in gathered.model_dump_json()
        assert "shut.txt" not in gathered.model_dump_json()
        assert [each[0::2] for each in await made.decisions()] == [
            ("ALLOW", "mcp://kb/tool/weather"),
            ("DENY", "mcp://kb/tool/payroll"),
            ("ALLOW", "mcp://kb/tool/gathered"),
        ]


class Streams:
    """A server that names `address` in its first event and accepts every message."""

    def __init__(self, address: bytes) -> None:
        self.address = address
        self.writers: list[asyncio.StreamWriter] = []

    async def answer(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.line.startswith("POST"):
            body = b"taken"
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(b"event: endpoint\ndata: %b\n\n" % self.address)
        self.writers.append(writer)
        await asyncio.Event().wait()

    def push(self, message: Said) -> None:
        self.writers[-1].write(b"event: message\ndata: %b\n\n" % orjson.dumps(message))


class Reader:
    """An agent's stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def until(self, text: bytes) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.readuntil(text)


@asynccontextmanager
async def streamed(
    tmp_path: Path, address: bytes, *fields: str, **changes: Any
) -> AsyncIterator[tuple[Wire, Streams, Reader]]:
    async with wired(tmp_path, sse="on", **changes) as wire:
        streams = Streams(address)
        wire.upstream.script = streams.answer
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        path = changes.get("path", "")
        writer.write(get(f"{path}/sse", *fields, host="kb"))
        try:
            yield wire, streams, Reader(reader, writer)
        finally:
            writer.close()


async def post(wire: Wire, target: str, message: Said, *fields: str) -> Answered:
    data = orjson.dumps(message)
    lines = [f"POST {target} HTTP/1.1", "Host: kb", "Connection: close", *fields]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return await ask(wire.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + data)


async def test_only_the_address_of_ones_own_open_stream_takes_messages(tmp_path: Path) -> None:
    async with streamed(tmp_path, b"/messages/?s=1", "X-Sluice-User: ada") as (wire, _, agent):
        await agent.until(b"data: /messages/?s=1\n\n")
        ping = request("ping")
        mine, others = "X-Sluice-User: ada", "X-Sluice-User: bob"
        assert (await post(wire, "/messages/?s=1", ping, mine)).status == 202
        # Whatever the server says here is not filtered, so it is left out.
        assert (await post(wire, "/messages/?s=1", ping, mine)).body == b""
        assert (await post(wire, "/messages/?s=1", ping, others)).status == 403
        for target in ("/messages/", "/messages/?s=2", "/other", "/sse"):
            assert (await post(wire, target, ping, mine)).status == 403
        arrived = [each.target for each in wire.upstream.seen if each.line.startswith("POST")]
        assert arrived == ["/messages/?s=1"] * 2
        agent.writer.close()

        async def closed() -> bool:
            return (await post(wire, "/messages/?s=1", ping, mine)).status == 403

        await until_async("the address is closed with its stream", closed)


async def test_a_denied_message_is_answered_on_the_stream(tmp_path: Path) -> None:
    async with streamed(tmp_path, b"/messages") as (wire, streams, agent):
        await agent.until(b"data: /messages\n\n")
        denied = await post(wire, "/messages", request("tools/call", {"name": "shut"}, 7))
        assert (denied.status, denied.body) == (202, b"")
        assert denied.fields["x-sluice-decision"] == "DENY"
        event = await agent.until(b"}}}\n\n")
        assert b'"id":7,"error":{"code":-32001' in event
        # A notification gets no answer.
        notified = await post(wire, "/messages", {"jsonrpc": "2.0", "method": "other"})
        assert (notified.status, notified.body) == (202, b"")
        assert not [each for each in wire.upstream.seen if each.line.startswith("POST")]
        # The stream goes on, and the result of a call that was not made here is withheld.
        streams.push({"jsonrpc": "2.0", "id": 9, "result": {"content": []}})
        assert b'"code":-32001' in await agent.until(b"\n\n")
        await post(wire, "/messages", request("tools/call", CALL, 10))
        streams.push({"jsonrpc": "2.0", "id": 10, "result": {"content": []}})
        assert b'"id":10,"result":{"content":[]}' in await agent.until(b"\n\n")


async def test_the_announced_address_is_below_the_agent_s_own_prefix(tmp_path: Path) -> None:
    async with streamed(tmp_path, b"/messages?s=1", path="/kb") as (_, _, agent):
        await agent.until(b"data: ./messages?s=1\n\n")


@pytest.mark.parametrize(
    ("upstream", "named", "target", "told"),
    [
        ("http://mcp.test", b"/messages/?s=1", "/messages/?s=1", b"/messages/?s=1"),
        ("http://mcp.test", b"messages", "/messages", b"./messages"),
        ("http://mcp.test/up", b"/up/messages?s=1", "/messages?s=1", b"./messages?s=1"),
        ("http://mcp.test/up", b"messages", "/messages", b"./messages"),
        ("http://mcp.test/up", b"http://mcp.test/up/m", "/m", b"./m"),
        ("http://mcp.test/up", b"/messages", None, b""),
        ("http://mcp.test/up", b"/upper/m", None, b""),
        ("http://mcp.test", b"https://mcp.test/m", None, b""),
    ],
)
def test_an_announced_address_must_be_the_server_s_own_below_its_path(
    upstream: str, named: bytes, target: str | None, told: bytes
) -> None:
    sessions = SseSessions(source(1, "mcp", upstream=upstream))
    if target is None:
        with pytest.raises(UpstreamFailed):
            sessions.named(named)
    else:
        found, shown = sessions.named(named)
        assert (found.forwarded, shown) == (target, told)


@pytest.mark.parametrize(
    "address",
    [
        b"http://other.test/messages",
        b"//other.test/messages",
        b"/a/../b",
        b"",
        b'{"jsonrpc":"2.0","method":"ping"}',
        b"/mess\xc3\xa4ges",
    ],
)
async def test_an_announced_address_elsewhere_ends_the_stream(
    tmp_path: Path, address: bytes
) -> None:
    async with streamed(tmp_path, address) as (wire, streams, agent):
        if not address:
            await agent.until(b"data: \n\n")
            streams.push({"jsonrpc": "2.0", "method": "ping"})
        async with asyncio.timeout(10):
            raw = await agent.reader.read()
        assert b"messages" not in raw
        assert (await post(wire, "/messages", request("ping"))).status == 403


async def test_the_older_transport_is_closed_unless_set(tmp_path: Path) -> None:
    async with wired(tmp_path) as wire:
        assert (await ask(wire.port, get("/sse", host="kb"))).status == 403
        assert (await post(wire, "/messages", request("ping"))).status == 403
        assert wire.upstream.seen == []
