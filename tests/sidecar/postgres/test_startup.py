"""An agent's first messages, byte by byte, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sidecar.http.tls_contexts import server_context
from sidecar.postgres import frontend
from sidecar.postgres.agent import AgentConnection
from sidecar.postgres.backend import BackendKey
from sidecar.postgres.connection import ConnectionLost
from sidecar.postgres.frames import ProtocolFault
from sidecar.postgres.payload import int32, message, text
from sidecar.postgres.startup import (
    ALPN,
    SSL_REQUEST,
    VERSION_3_0,
    VERSION_3_2,
    CancelRequest,
    Startup,
    StartupRefused,
    cancel_request,
    receive_password,
    receive_startup,
    startup_message,
)
from sidecar.proxy.connections import BufferedConnection
from tests.support.certificates import authority

SECONDS = 5.0
GSS_REQUEST = message(b"", struct.pack("!HH", 1234, 5680))
PARAMETERS = {b"user": b"agent", b"database": b"crm"}
STARTUP = startup_message(VERSION_3_0, PARAMETERS)
Step = Callable[[AgentConnection], Awaitable[Any]]
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def agent_connected(step: Step) -> AsyncIterator[tuple[Peer, asyncio.Future[Any]]]:
    """Yield the agent's socket, and the future result of `step` on the sidecar's end."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()
    tasks = set()

    async def run(accepted: BufferedConnection) -> None:
        agent = AgentConnection()
        accepted.hand_to(agent)
        try:
            result.set_result(await step(agent))
        except (ProtocolFault, OSError) as error:
            result.set_exception(error)
        agent.close()

    class Accepted(BufferedConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            tasks.add(loop.create_task(run(self)))

    server = await loop.create_server(lambda: Accepted(65_536), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield (reader, writer), result
    finally:
        writer.close()
        server.close()
        await asyncio.gather(*tasks)
        if result.done() and not result.cancelled():
            result.exception()


def starting(context: ssl.SSLContext | None = None) -> Step:
    return lambda agent: receive_startup(agent, context, SECONDS)


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    return server_context(authority().issue("db.test"), None, (ALPN,))


def client_context(*protocols: str) -> ssl.SSLContext:
    made = authority().client()
    if protocols:
        made.set_alpn_protocols(list(protocols))
    return made


READ = [
    (STARTUP, b"", Startup(VERSION_3_0, PARAMETERS)),
    (startup_message(VERSION_3_2, PARAMETERS), b"", Startup(VERSION_3_2, PARAMETERS)),
    # PostgreSQL answers with the newest version that it speaks.
    (
        startup_message(VERSION_3_0 + 9_999, PARAMETERS),
        b"v" + struct.pack("!III", 12, VERSION_3_2, 0),
        Startup(VERSION_3_2, PARAMETERS),
    ),
    (
        startup_message(VERSION_3_0, PARAMETERS | {b"_pq_.x": b"1", b"_pq_.y": b""}),
        b"v" + struct.pack("!III", 26, VERSION_3_0, 2) + b"_pq_.x\0_pq_.y\0",
        Startup(VERSION_3_0, PARAMETERS),
    ),
    (startup_message(VERSION_3_0, PARAMETERS | {b"replication": b"off"}), b"", None),
    (SSL_REQUEST, b"N", None),
    (GSS_REQUEST, b"N", None),
    (cancel_request(BackendKey(7, b"1234")), b"", CancelRequest(BackendKey(7, b"1234"))),
    (
        cancel_request(BackendKey(0xFFFFFFFF, b"k" * 256)),
        b"",
        CancelRequest(BackendKey(0xFFFFFFFF, b"k" * 256)),
    ),
]


@pytest.mark.parametrize(("sent", "answer", "meant"), READ, ids=map(str, range(len(READ))))
async def test_first_messages_are_answered(sent: bytes, answer: bytes, meant: object) -> None:
    async with agent_connected(starting()) as ((reader, writer), result):
        writer.write(sent)
        if answer:
            assert await reader.readexactly(len(answer)) == answer
        if sent in (SSL_REQUEST, GSS_REQUEST):
            # What is not encrypted may go on unencrypted, or ask in the other way.
            writer.write(SSL_REQUEST if sent == GSS_REQUEST else GSS_REQUEST)
            assert await reader.readexactly(1) == b"N"
            writer.write(STARTUP)
        assert await result == (meant or Startup(VERSION_3_0, PARAMETERS))


FAULTS = [
    (SSL_REQUEST + STARTUP, "behind a request for encryption"),
    (GSS_REQUEST + STARTUP, "behind a request for encryption"),
    (message(b"", SSL_REQUEST[4:], b"\0"), "has a payload"),
    (b"\x16\x03\x01\x02\x00", "no certificate"),
    (b"GET / HTTP/1.1\r\n", "length of 1,195,725,856"),
    (int32(10_001), "length of 10,001"),
    (startup_message(VERSION_3_0, {b"database": b"crm"}), "names no `user`"),
    (message(b"", int32(VERSION_3_0), text(b"user"), text(b"a"), b"\0x"), "behind its last field"),
    (message(b"", int32(VERSION_3_0), text(b"user"), text(b"a")), "doesn't end"),
    (message(b"", int32(VERSION_3_0), (text(b"user") + text(b"a")) * 2, b"\0"), "twice"),
    (message(b"", int32(2 << 16)), "version 2.0"),
    (message(b"", int32(4 << 16)), "version 4.0"),
    (startup_message(VERSION_3_0, PARAMETERS | {b"replication": b"database"}), "replication"),
    (startup_message(VERSION_3_0, PARAMETERS | {b"replication": b"true"}), "replication"),
    (cancel_request(BackendKey(7, b"123")), "a key of 3 bytes"),
    (cancel_request(BackendKey(7, b"k" * 257)), "a key of 257 bytes"),
]


@pytest.mark.parametrize(("sent", "reason"), FAULTS, ids=map(str, range(len(FAULTS))))
async def test_a_first_message_that_is_wrong_is_refused(sent: bytes, reason: str) -> None:
    async with agent_connected(starting()) as ((_, writer), result):
        writer.write(sent)
        with pytest.raises(ProtocolFault, match=reason) as caught:
            await result
    unserved = "version" in reason or reason == "replication"
    assert caught.value.sqlstate == ("0A000" if unserved else "08P01")


async def test_a_second_request_for_encryption_is_refused() -> None:
    async with agent_connected(starting()) as ((reader, writer), result):
        writer.write(SSL_REQUEST)
        assert await reader.readexactly(1) == b"N"
        writer.write(SSL_REQUEST)
        with pytest.raises(ProtocolFault, match="comes twice"):
            await result


async def test_tls_begins_once_it_is_asked_for(context: ssl.SSLContext) -> None:
    async def step(agent: AgentConnection) -> tuple[object, bool]:
        return await receive_startup(agent, context, SECONDS), agent.tls

    async with agent_connected(step) as ((reader, writer), result):
        writer.write(GSS_REQUEST)
        assert await reader.readexactly(1) == b"N"
        writer.write(SSL_REQUEST)
        assert await reader.readexactly(1) == b"S"
        await writer.start_tls(client_context(), server_hostname="db.test")
        writer.write(STARTUP)
        assert await result == (Startup(VERSION_3_0, PARAMETERS), True)


@pytest.mark.parametrize(
    ("protocols", "accepted"), [((ALPN,), True), (("h2",), False), ((), False)]
)
async def test_tls_may_begin_at_once_for_the_protocol_postgresql(
    context: ssl.SSLContext, protocols: tuple[str, ...], accepted: bool
) -> None:
    async with agent_connected(starting(context)) as ((_, writer), result):
        await writer.start_tls(client_context(*protocols), server_hostname="db.test")
        writer.write(STARTUP)
        if accepted:
            assert await result == Startup(VERSION_3_0, PARAMETERS)
        else:
            with pytest.raises(ProtocolFault, match="ALPN"):
                await result


@pytest.mark.parametrize("behind", [STARTUP, b"\x16", SSL_REQUEST])
async def test_nothing_sent_before_the_handshake_is_read_behind_it(
    context: ssl.SSLContext, behind: bytes
) -> None:
    async with agent_connected(starting(context)) as ((reader, writer), result):
        writer.write(SSL_REQUEST + behind)
        with pytest.raises(ProtocolFault, match="behind a request for encryption"):
            await result
        assert await reader.read() == b""


async def test_what_is_no_tls_is_refused(context: ssl.SSLContext) -> None:
    async with agent_connected(starting(context)) as ((reader, writer), result):
        writer.write(SSL_REQUEST)
        assert await reader.readexactly(1) == b"S"
        writer.write(STARTUP)
        with pytest.raises(ProtocolFault, match="not valid TLS"):
            await result


async def test_an_agent_that_does_not_trust_the_certificate_leaves(
    context: ssl.SSLContext,
) -> None:
    async with agent_connected(starting(context)) as ((reader, writer), result):
        writer.write(SSL_REQUEST)
        assert await reader.readexactly(1) == b"S"
        with pytest.raises(ssl.SSLError):
            await writer.start_tls(authority("other").client(), server_hostname="db.test")
        with pytest.raises(ConnectionLost):
            await result


async def test_an_agent_that_leaves_or_says_nothing_is_given_up(context: ssl.SSLContext) -> None:
    for sent in (b"", STARTUP[:-1], SSL_REQUEST):
        async with agent_connected(starting(context)) as ((_, writer), result):
            writer.write(sent)
            writer.write_eof()
            with pytest.raises(ConnectionLost):
                await result

    def impatient(agent: AgentConnection) -> Awaitable[object]:
        return receive_startup(agent, context, 0.01)

    for sent in (b"", STARTUP[:-1], SSL_REQUEST):
        async with agent_connected(impatient) as ((_, writer), result):
            writer.write(sent)
            with pytest.raises(TimeoutError):
                await result


async def test_a_key_is_asked_for_as_a_password() -> None:
    async def step(agent: AgentConnection) -> bytes:
        return await receive_password(agent, SECONDS)

    async with agent_connected(step) as ((reader, writer), result):
        assert await reader.readexactly(9) == b"R" + struct.pack("!II", 8, 3)
        writer.write(message(b"p", text(b"sk_key")))
        assert await result == b"sk_key"
    async with agent_connected(step) as ((_, writer), result):
        writer.write(frontend.query(b"SELECT 1"))
        with pytest.raises(ProtocolFault, match="kind 0x51 can't stand here"):
            await result


PEERS = [
    (("192.0.2.1", 5432), False),
    (("::ffff:192.0.2.1", 5432, 0, 0), False),
    (("127.0.0.2", 5432), True),
    (("::1", 5432, 0, 0), True),
    (("::ffff:127.0.0.1", 5432, 0, 0), True),
    ("/run/agent.sock", True),
]


@pytest.mark.parametrize(("peer", "confidential"), PEERS, ids=str)
async def test_a_key_is_taken_from_elsewhere_over_tls_only(
    peer: object, confidential: bool
) -> None:
    agent = AgentConnection()
    agent.connection_made(asyncio.Transport({"peername": peer}))
    assert agent.confidential == confidential
    if not confidential:
        with pytest.raises(StartupRefused, match="over TLS only"):
            await receive_password(agent, SECONDS)
