"""Servers that answer a login as they should not. What real ones do is in `test_real_server.py`."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from scramp import ScramMechanism

from sidecar.http.tls_contexts import client_context, server_context
from sidecar.postgres import backend
from sidecar.postgres.backend import BackendKey
from sidecar.postgres.connection import ConnectionLost
from sidecar.postgres.frames import ProtocolFault
from sidecar.postgres.payload import int32, message, text
from sidecar.postgres.server import Login, LoginRefused, TlsRefused
from sidecar.postgres.startup import (
    ALPN,
    SSL_REQUEST,
    VERSION_3_0,
    VERSION_3_2,
    startup_message,
)
from sidecar.settings.model import UpstreamTls
from tests.sidecar.postgres.relay import upstream_of
from tests.support.certificates import authority

PASSWORD = "correct horse"
LOGIN = Login("agent", PASSWORD, "crm", {"statement_timeout": "30s"})
OFFER = message(b"R", int32(10), text(b"SCRAM-SHA-256"), b"\0")
KEY = BackendKey(7, b"1234")
GREETING = (
    backend.AUTHENTICATION_OK
    + backend.parameter_status(b"server_version", b"18.4")
    + backend.backend_key_data(*KEY)
    + backend.ready(b"I")
)
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[int]:
    """Yield the port of a server that answers each connection, then waits for its end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the sidecar leaves in the middle, as it should
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def receive(reader: asyncio.StreamReader) -> bytes:
    """Return the payload of a message of the client's: of its first, if there is no kind."""
    kind = await reader.readexactly(1)
    rest = await reader.readexactly(4 if kind != b"\0" else 3)
    length = int.from_bytes(rest if kind != b"\0" else kind + rest, "big")
    return await reader.readexactly(length - 4)


def saying(*answers: bytes) -> Answer:
    """Answer each message of the client's with the next of `answers`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in answers:
            await receive(reader)
            writer.write(each)

    return answer


def proving(spoil: Callable[[str], str] = str, iterations: int = 4_096) -> Answer:
    """Answer as PostgreSQL does, with a last text of SCRAM that `spoil` changes."""
    mechanism = ScramMechanism()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = mechanism.make_auth_info(PASSWORD)
        scram = mechanism.make_server(lambda _: known)
        await receive(reader)
        writer.write(OFFER)
        first = await receive(reader)
        scram.set_client_first(first[len(b"SCRAM-SHA-256") + 5 :].decode())
        challenge = scram.get_server_first().replace("i=4096", f"i={iterations}")
        writer.write(message(b"R", int32(11), challenge.encode()))
        scram.set_client_final((await receive(reader)).decode())
        final = spoil(scram.get_server_final()).encode()
        writer.write(message(b"R", int32(12), final) + GREETING)

    return answer


async def test_a_login_ends_with_the_server_ready() -> None:
    async with answering(proving()) as port:
        upstream = upstream_of(port)
        server = await upstream.connect(LOGIN)
        assert server.parameters == {b"server_version": b"18.4"}
        assert (server.key, server.status, server.version) == (KEY, b"I", VERSION_3_0)
        assert upstream.connections == 1
        server.terminate()
        await server.lost
        assert upstream.connections == 0


async def test_the_startup_message_has_what_the_login_says() -> None:
    arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        arrived.set_result(await receive(reader))

    async with answering(answer) as port:
        with pytest.raises(TimeoutError):
            await upstream_of(port, seconds=0.05).connect(LOGIN)
    parameters = {b"user": b"agent", b"database": b"crm", b"statement_timeout": b"30s"}
    assert await arrived == startup_message(VERSION_3_0, parameters)[4:]


async def test_a_version_below_the_one_asked_for_is_spoken() -> None:
    lower = backend.negotiate_version(VERSION_3_0, [])
    login = LOGIN._replace(password=None, version=VERSION_3_2)
    async with answering(saying(lower + GREETING)) as port:
        server = await upstream_of(port).connect(login)
        assert server.version == VERSION_3_0
        server.abort()


REFUSED: list[tuple[Answer, str]] = [
    (saying(GREETING), "asks for no password"),
    # A server that skips its own proof need not know the password.
    (saying(OFFER, GREETING), "skips its own proof"),
    (saying(OFFER, message(b"R", int32(12), b"v=" + b"A" * 44)), "must be called|next method"),
    (proving(lambda final: final[:-6] + "AAAA" + final[-2:]), "does not know the password"),
    (proving(lambda _: "e=other-error"), "does not know the password"),
    (proving(iterations=1_000_001), "more than 1,000,000 iterations"),
    (saying(OFFER, message(b"R", int32(11), b"r=other,s=QSXCR+Q6sek8bf92,i=4096")), "nonce"),
    (saying(OFFER, message(b"R", int32(11), b"\xff")), "not UTF-8"),
    (saying(message(b"R", int32(10), text(b"SCRAM-SHA-1"), b"\0")), "no SCRAM-SHA-256"),
    (saying(message(b"R", int32(10), text(b"SCRAM-SHA-256-PLUS"), b"\0")), "no SCRAM-SHA-256"),
    (saying(OFFER, OFFER), "the method 10"),
    (saying(message(b"R", int32(3))), "the password itself: demand `scram-sha-256`"),
    (saying(message(b"R", int32(5), b"salt")), "its MD5 digest"),
    (saying(message(b"R", int32(7))), "the method 7"),
    (saying(backend.error("28P01", "no", severity="FATAL")), r"no \(SQLSTATE 28P01\)"),
]


@pytest.mark.parametrize(("answer", "reason"), REFUSED, ids=map(str, range(len(REFUSED))))
async def test_a_login_that_proves_nothing_is_refused(answer: Answer, reason: str) -> None:
    async with answering(answer) as port:
        upstream = upstream_of(port)
        with pytest.raises(LoginRefused, match=reason) as caught:
            await upstream.connect(LOGIN)
        assert PASSWORD not in str(caught.value)


FAULTS = [
    (backend.ready(b"I"), "kind 0x5a can't stand in a login"),
    (backend.backend_key_data(*KEY), "kind 0x4b"),
    (backend.data_row([b"1"]), "kind 0x44 can't stand here"),
    (backend.AUTHENTICATION_OK * 2, "kind 0x52"),
    (backend.negotiate_version(VERSION_3_2, []), "negotiates"),
    (backend.negotiate_version(2 << 16, []), "negotiates"),
    (backend.negotiate_version(VERSION_3_0, [b"_pq_.x"]), "negotiates"),
    (b"N" + struct.pack("!I", 30_001), "over the limit of 30,000"),
    (backend.notice("00000", "x") * 1_001, "more than 1,000 messages"),
    (b"HTTP/1.1 400 Bad Request\r\n", "kind 0x48"),
]


@pytest.mark.parametrize(("answer", "reason"), FAULTS, ids=map(str, range(len(FAULTS))))
async def test_a_server_that_breaks_the_protocol_is_refused(answer: bytes, reason: str) -> None:
    async with answering(saying(answer)) as port:
        with pytest.raises(ProtocolFault, match=reason):
            await upstream_of(port).connect(LOGIN._replace(password=None))


async def test_a_server_that_asks_for_a_password_where_none_is_configured_is_refused() -> None:
    async with answering(saying(OFFER)) as port:
        with pytest.raises(LoginRefused, match="none is configured"):
            await upstream_of(port).connect(LOGIN._replace(password=None))


def verifying(*trusted: str) -> ssl.SSLContext:
    return client_context(UpstreamTls(ca=authority(*trusted).path), (ALPN,))


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (b"N", TlsRefused, "has no TLS"),
        (backend.error("08P01", "no"), TlsRefused, "does not answer"),
        (b"S" + GREETING, ProtocolFault, "behind the answer to an SSLRequest"),
        (b"", ConnectionLost, "lost"),
    ],
)
async def test_a_server_without_tls_is_refused(
    answer: bytes, error: type[Exception], reason: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(8) == SSL_REQUEST
        writer.write(answer)
        writer.write_eof()

    async with answering(serve) as port:
        with pytest.raises(error, match=reason):
            await upstream_of(port, verifying()).connect(LOGIN)


@pytest.mark.parametrize(
    ("trusted", "name", "reason"),
    [
        (("other",), "db.test", "unable to get local issuer certificate"),
        ((), "elsewhere.test", "[Hh]ostname mismatch"),
        ((), "127.0.0.1", "IP address mismatch"),
    ],
)
async def test_another_server_than_the_one_meant_is_refused(
    trusted: tuple[str, ...], name: str, reason: str
) -> None:
    shown = server_context(authority().issue("db.test"), None, (ALPN,))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        await writer.start_tls(shown)

    async with answering(serve) as port:
        with pytest.raises(TlsRefused, match=f"its certificate is not trusted: {reason}"):
            await upstream_of(port, verifying(*trusted), name).connect(LOGIN)


async def test_a_server_that_is_silent_keeps_no_place() -> None:
    for answer in (b"", b"S"):

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = answer
        ) -> None:
            await reader.readexactly(8)
            writer.write(answer)

        async with answering(serve) as port:
            upstream = upstream_of(port, verifying(), seconds=0.05)
            with pytest.raises(TimeoutError):
                await upstream.connect(LOGIN)
            with pytest.raises(TimeoutError):
                await upstream.cancel(KEY)
            await asyncio.sleep(0)
            assert upstream.connections == 0
