"""The work for a request ends with its agent, however that leaves: what it asks for in many lines
is no longer looked up, its body no longer held, its request broken off at the data source. Where
`half_close` is `wait`, one that ends its sending side and waits still gets its response."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.http.request_body import BodyBudget
from sidecar.proxy.assembly import FORWARD_PROXY, ProxyPorts
from sidecar.proxy.limits import LIMITS
from sidecar.sessions import SessionRegistry
from sidecar.settings.model import HalfClose
from tests.sidecar.proxy.raw_client import INTERIM, get, leave
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, sidecar, source
from tests.support.scripted_source import DataSource, Seen, data_source
from tests.support.waiting import until_async

# What ends an abandoned request by time alone is out of reach.
PATIENT = replace(LIMITS, half_close_seconds=600.0, idle_seconds=600.0, lookup_seconds=600.0)
NAMES = 40
"""Different names, each of which costs a look-up."""
BODY = b"".join(b'{"index":"i%d"}\n{}\n' % (line % NAMES) for line in range(400)) + b" " * 90_000
"""Larger than what is read on the loop."""
MORE = b"GET / HTTP/1.1\r\nHost: kb\r\n\r\n" * 5_000
"""More than is read ahead, so that reading stops, and with it the news of the connection. It is
little enough to arrive."""
FOUND = b'{"indices":[],"aliases":[],"data_streams":[]}'
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Front:
    """A proxy in front of a source that answers look-ups once it may."""

    def __init__(self, made: Sidecar, upstream: DataSource, bodies: BodyBudget) -> None:
        self.sidecar, self.upstream, self.bodies = made, upstream, bodies
        self.port = 0
        self.go = asyncio.Event()

    async def script(self, _seen: Seen, writer: asyncio.StreamWriter) -> None:
        await self.go.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(FOUND), FOUND))

    async def looking_up(self, version: bytes = b"1.1", more: bytes = b"") -> Streams:
        """The connection of an agent whose first look-up is under way."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = b"POST /_msearch HTTP/%b\r\nHost: kb\r\nContent-Length: %d\r\n%b\r\n\r\n"
        writer.write(head % (version, len(BODY), b"Content-Type: application/x-ndjson"))
        writer.write(BODY + more)
        await until_async("a name is looked up", lambda: len(self.upstream.seen) == 1)
        return reader, writer

    async def nothing_goes_on(self) -> None:
        await until_async("the look-up is broken off", lambda: not self.upstream.open)
        await until_async("the body is let go", lambda: not self.bodies.held)
        self.go.set()
        await waiting.turns()
        assert len(self.upstream.begun) == 1, "no other name is looked up"
        assert await self.sidecar.decisions() == []


@asynccontextmanager
async def front(tmp_path: Path, kind: str = "opensearch") -> AsyncIterator[Front]:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        found = Front(made, upstream, BodyBudget())
        upstream.script = found.script
        proxy = made.proxy([source(upstream.port, kind)], limits=PATIENT, bodies=found.bodies)
        await proxy.start()
        found.port = proxy.port("kb")
        try:
            yield found
        finally:
            await proxy.close(1)


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


LEAVES: dict[str, Callable[[asyncio.StreamWriter], None]] = {"closes": close, "resets": leave}


@pytest.mark.parametrize("more", [b"", MORE], ids=["read", "unread"])
@pytest.mark.parametrize("how", LEAVES)
async def test_nothing_is_looked_up_for_an_agent_that_has_left(
    tmp_path: Path, how: str, more: bytes
) -> None:
    async with front(tmp_path) as made:
        _, writer = await made.looking_up(more=more)
        LEAVES[how](writer)
        await made.nothing_goes_on()


@pytest.mark.parametrize("how", LEAVES)
async def test_no_session_is_claimed_for_an_agent_that_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    begun = ended = False

    async def claim(*_given: object, **_more: object) -> None:
        nonlocal begun, ended
        begun = True
        try:
            await waiting.never()
        finally:
            ended = True

    monkeypatch.setattr(SessionRegistry, "claim", claim)
    async with front(tmp_path, "rest") as made:
        _, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(b"GET /books HTTP/1.1\r\nHost: kb\r\nX-Sluice-Session: s-1\r\n\r\n")
        await until_async("the session is being claimed", lambda: begun)
        LEAVES[how](writer)
        await until_async("it has ended", lambda: ended)
        assert not made.upstream.begun


async def test_an_agent_that_half_closes_and_waits_gets_its_response(tmp_path: Path) -> None:
    async with front(tmp_path) as made:
        reader, writer = await made.looking_up()
        writer.write_eof()
        assert await reader.readexactly(len(INTERIM)) == INTERIM, "whether it is still there"
        made.go.set()
        rest = await reader.read()
        assert rest.startswith(b"HTTP/1.1 200 OK\r\n")
        assert INTERIM not in rest, "it is asked once"
        writer.close()
        lookups = [each for each in made.upstream.targets if "/_resolve/index/" in each]
        assert len(lookups) == len(set(lookups)) == NAMES, "each name once, of ten lines"


async def test_an_agent_of_http_1_0_that_half_closes_counts_as_gone(tmp_path: Path) -> None:
    async with front(tmp_path) as made:
        _, writer = await made.looking_up(b"1.0")
        writer.write_eof()
        await made.nothing_goes_on()
        writer.close()


# ------------------------------------------------------------- before and while a response arrives


class Silent:
    """A proxy in front of a source that answers once it may; `/events` begins at once."""

    def __init__(self, made: Sidecar, upstream: DataSource) -> None:
        self.sidecar, self.upstream = made, upstream
        self.ports: dict[str, int] = {}
        self.go = asyncio.Event()

    async def script(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/events":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await self.go.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def asking(
        self,
        port: str,
        target: str = "/a",
        more: bytes = b"",
        tls: ssl.SSLContext | None = None,
    ) -> Streams:
        """The connection of an agent whose request is at the data source."""
        name = None if tls is None else "kb.test"
        at = self.ports[port]
        opening = asyncio.open_connection("127.0.0.1", at, ssl=tls, server_hostname=name)
        reader, writer = await opening
        writer.write(get(f"http://kb.test{target}" if port == FORWARD_PROXY else target) + more)
        await until_async("the source has the request", lambda: len(self.upstream.seen) == 1)
        return reader, writer

    async def nothing_goes_on(self) -> None:
        await until_async("the source sees the end", lambda: not self.upstream.open)
        assert len(self.upstream.begun) == 1
        [lineage] = await self.sidecar.lineage()
        assert lineage["outcome"] == "truncated"


@asynccontextmanager
async def silent(tmp_path: Path, half_close: HalfClose, **changes: Any) -> AsyncIterator[Silent]:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        found = Silent(made, upstream)
        upstream.script = found.script
        named = ProxyPorts(ListenAddress("127.0.0.1", 0))
        hosts = ("kb.test", "kb.test:80")
        at = source(upstream.port, hosts=hosts, half_close=half_close, **changes)
        proxy = made.proxy([at], limits=PATIENT, named=named, half_close=half_close)
        await proxy.start()
        found.ports = {name: proxy.port(name) for name in ("kb", FORWARD_PROXY)}
        try:
            yield found
        finally:
            await proxy.close(1)


def half_close(writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


ENDS = {**LEAVES, "half-closes": half_close}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("port", ["kb", FORWARD_PROXY])
async def test_a_request_ends_at_the_data_source_with_its_agent(
    tmp_path: Path, port: str, how: str
) -> None:
    async with silent(tmp_path, "cancel") as made:
        reader, writer = await made.asking(port)
        ENDS[how](writer)
        await made.nothing_goes_on()
        if how == "half-closes":
            assert await reader.read() == b""
        writer.close()


async def test_a_request_over_tls_ends_at_the_data_source_with_its_agent(tmp_path: Path) -> None:
    ours = authority()
    async with silent(tmp_path, "cancel", listen_tls=ours.issue("kb.test")) as made:
        _, writer = await made.asking("kb", tls=ours.client())
        writer.close()
        await made.nothing_goes_on()


@pytest.mark.parametrize("more", [get("/b"), get("/b") + MORE], ids=["read", "unread"])
async def test_data_after_a_request_does_not_hide_that_its_agent_closes(
    tmp_path: Path, more: bytes
) -> None:
    async with silent(tmp_path, "cancel") as made:
        _, writer = await made.asking("kb", more=more)
        writer.close()
        await made.nothing_goes_on()


async def test_a_second_request_is_not_taken_for_a_close(tmp_path: Path) -> None:
    async with silent(tmp_path, "cancel") as made:
        reader, writer = await made.asking("kb")
        writer.write(get("/b"))
        await waiting.turns()
        made.go.set()
        for _ in range(2):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(2) == b"ok"
        assert made.upstream.targets == ["/a", "/b"]
        writer.close()


@pytest.mark.parametrize("how", ENDS)
async def test_a_stream_of_events_ends_at_the_data_source_with_its_agent(
    tmp_path: Path, how: str
) -> None:
    async with silent(tmp_path, "cancel") as made:
        reader, writer = await made.asking("kb", "/events")
        await reader.readuntil(b"data: 1\n\n")
        ENDS[how](writer)
        await made.nothing_goes_on()
        writer.close()


@pytest.mark.parametrize("port", ["kb", FORWARD_PROXY])
async def test_an_agent_that_half_closes_is_answered_where_the_listener_waits(
    tmp_path: Path, port: str
) -> None:
    async with silent(tmp_path, "wait") as made:
        reader, writer = await made.asking(port)
        writer.write_eof()
        await waiting.turns()
        made.go.set()
        assert (await reader.read()).endswith(b"ok")
        writer.close()
