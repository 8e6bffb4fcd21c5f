"""Logins at a real PostgreSQL 18, with and without TLS, and how connections to it end."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from sidecar.http.tls_contexts import client_context
from sidecar.postgres import backend, frontend
from sidecar.postgres.connection import ConnectionLost
from sidecar.postgres.frames import Frame, ProtocolFault
from sidecar.postgres.payload import message
from sidecar.postgres.server import Login, LoginRefused, ServerConnection, TlsRefused
from sidecar.postgres.startup import ALPN, SSL_REQUEST, VERSION_3_0, VERSION_3_2
from sidecar.postgres.upstream import Upstream
from sidecar.settings.model import Pair, UpstreamTls
from tests.sidecar.postgres.relay import upstream_of
from tests.support.certificates import authority
from tests.support.postgres_with_tls import TlsServer, running_postgres
from tests.support.waiting import until_async

NAME = "db.test"
ACCESS = [
    "hostssl all certified 127.0.0.1/32 cert",
    "host all digested 127.0.0.1/32 md5",
    "host all spelled 127.0.0.1/32 password",
    "host all trusted 127.0.0.1/32 trust",
    "hostnossl all only_tls 127.0.0.1/32 reject",
    "host all all 127.0.0.1/32 scram-sha-256",
]
ROLES = """\
CREATE ROLE agent LOGIN PASSWORD :password
CREATE ROLE only_tls LOGIN PASSWORD :password
CREATE ROLE spelled LOGIN PASSWORD :password
CREATE ROLE certified LOGIN
CREATE ROLE trusted LOGIN
SET password_encryption = md5; CREATE ROLE digested LOGIN PASSWORD :password
"""


@pytest.fixture(scope="module")
def server() -> Iterator[TlsServer]:
    with running_postgres(authority().issue(NAME), authority(), ACCESS, ROLES) as running:
        yield running


def verifying(*trusted: str, shown: Pair | None = None) -> ssl.SSLContext:
    tls = UpstreamTls(authority(*trusted).path)
    if shown is not None:
        tls = replace(tls, certificate=shown.certificate, key=shown.key)
    return client_context(tls, (ALPN,))


def login(server: TlsServer, user: str = "agent", **changes: Any) -> Login:
    return Login(user, server.password, "postgres")._replace(**changes)


async def ask(connection: ServerConnection, sql: str) -> list[Frame]:
    """Return what the server answers to a statement, up to ReadyForQuery."""
    connection.write(frontend.query(sql.encode()))
    answers = [await connection.read()]
    while answers[-1].kind != b"Z":
        answers.append(await connection.read())
    return answers


async def all_freed(upstream: Upstream) -> None:
    await until_async("no place is taken", lambda: upstream.connections == 0)


async def value(connection: ServerConnection, sql: str) -> bytes | None:
    rows = [each for each in await ask(connection, sql) if each.kind == b"D"]
    return next(iter(backend.rows(rows[0])))[0]


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_a_login_ends_with_the_server_ready"
)
@pytest.mark.parametrize("version", [VERSION_3_0, VERSION_3_2])
@pytest.mark.parametrize("tls", [False, True])
async def test_a_login_by_scram(server: TlsServer, version: int, tls: bool) -> None:
    upstream = upstream_of(server.port, verifying() if tls else None, NAME)
    settings = {"application_name": "sluice", "statement_timeout": "7s"}
    asked = login(server, version=version, parameters=settings)
    connection = await upstream.connect(asked)
    assert (connection.tls is not None) == tls
    assert connection.version == version
    assert connection.key is not None
    # A key of version 3.2 can't be guessed.
    assert len(connection.key.secret) == (32 if version == VERSION_3_2 else 4)
    assert connection.parameters[b"application_name"] == b"sluice"
    assert connection.parameters[b"server_version"].startswith(b"18.")
    assert await value(connection, "SHOW statement_timeout") == b"7s"
    assert await value(connection, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == (
        b"t" if tls else b"f"
    )
    connection.terminate()
    await connection.lost
    await all_freed(upstream)


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_a_login_that_proves_nothing_is_refused"
)
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("changes", "sqlstate", "reason"),
    [
        ({"password": "wrong"}, "28P01", "password authentication failed"),
        ({"user": "absent"}, "28P01", "password authentication failed"),
        ({"database": "absent"}, "3D000", 'database "absent" does not exist'),
        ({"parameters": {"absent": "1"}}, "42704", "unrecognized configuration parameter"),
        ({"user": "digested"}, "28000", "MD5 digest: demand `scram-sha-256`"),
        ({"user": "spelled"}, "28000", "the password itself: demand `scram-sha-256`"),
        ({"user": "trusted"}, "28000", "asks for no password"),
        ({"password": None}, "28000", "none is configured"),
        # What SASLprep forbids.
        ({"password": "\u0627a\u0627"}, "28000", "bidi"),
    ],
)
async def test_a_login_that_fails(
    server: TlsServer, tls: bool, changes: dict[str, Any], sqlstate: str, reason: str
) -> None:
    upstream = upstream_of(server.port, verifying() if tls else None, NAME)
    with pytest.raises(LoginRefused, match=re.escape(reason)) as caught:
        await upstream.connect(login(server)._replace(**changes))
    assert caught.value.sqlstate == sqlstate
    assert server.password not in str(caught.value)
    await all_freed(upstream)


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_another_server_than_the_one_meant_is_refused"
)
async def test_only_the_server_that_is_meant_gets_the_password(server: TlsServer) -> None:
    for context, name, reason in (
        (verifying("other"), NAME, "self-signed certificate in certificate chain"),
        (verifying(), "elsewhere.test", "[Hh]ostname mismatch"),
    ):
        upstream = upstream_of(server.port, context, name)
        with pytest.raises(TlsRefused, match=f"its certificate is not trusted: {reason}"):
            await upstream.connect(login(server))
        await all_freed(upstream)
    with pytest.raises(LoginRefused, match=r"no encryption|pg_hba.conf rejects") as caught:
        await upstream_of(server.port).connect(login(server, "only_tls"))
    assert caught.value.sqlstate == "28000"


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_a_server_without_tls_is_refused"
)
async def test_a_real_server_without_tls_is_refused(postgres_url: str) -> None:
    port = int(postgres_url.rpartition(":")[2].partition("/")[0])
    with pytest.raises(TlsRefused, match="has no TLS"):
        await upstream_of(port, verifying(), NAME).connect(Login("owner", "x", "postgres"))


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_a_login_ends_with_the_server_ready"
)
async def test_a_login_by_certificate(server: TlsServer) -> None:
    asked = login(server, "certified", password=None)
    shown = verifying(shown=authority().issue("certified"))
    connection = await upstream_of(server.port, shown, NAME).connect(asked)
    assert await value(connection, "SELECT current_user") == b"certified"
    connection.abort()
    with pytest.raises(LoginRefused, match="certificate authentication failed"):
        await upstream_of(server.port, verifying(shown=authority().issue("another")), NAME).connect(
            asked
        )


@asynccontextmanager
async def in_the_middle(server: TlsServer, *, strip: bool = False) -> AsyncIterator[int]:
    """Yield the port of a machine in the middle, whose certificate is as good as the server's. With
    `strip`, it removes SCRAM-SHA-256-PLUS from what the server offers."""
    shown = authority().server(NAME)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        await writer.start_tls(shown)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server.port)
        far_writer.write(SSL_REQUEST)
        assert await far_reader.readexactly(1) == b"S"
        await far_writer.start_tls(verifying(), server_hostname=NAME)

        async def up() -> None:
            while data := await reader.read(65_536):
                far_writer.write(data)

        async def down() -> None:
            while data := await far_reader.read(65_536):
                if strip and b"SCRAM-SHA-256-PLUS\0" in data:
                    offer = message(b"R", b"\0\0\0\x0aSCRAM-SHA-256\0\0")
                    data = offer
                writer.write(data)
            writer.close()

        await asyncio.gather(up(), down(), return_exceptions=True)
        far_writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_a_login_that_proves_nothing_is_refused"
)
@pytest.mark.parametrize(
    ("strip", "reason"),
    [
        # It passes on a proof that is bound to its own certificate.
        (False, "SCRAM channel binding check failed"),
        # The client says that it could bind, and the server knows that it offered to.
        (True, "SCRAM channel binding negotiation error"),
    ],
)
async def test_a_machine_in_the_middle_gets_nowhere(
    server: TlsServer, strip: bool, reason: str
) -> None:
    async with in_the_middle(server, strip=strip) as port:
        with pytest.raises(LoginRefused, match=reason) as caught:
            await upstream_of(port, verifying(), NAME).connect(login(server))
        assert caught.value.sqlstate == "28000"


async def asleep(upstream: Upstream, server: TlsServer, version: int) -> ServerConnection:
    """Return a connection that runs a statement of a minute."""
    connection = await upstream.connect(login(server, version=version))
    other = await upstream.connect(login(server))
    connection.write(frontend.query(b"SELECT pg_sleep(60)"))
    assert connection.key is not None
    sleeping = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        f" AND pid = {connection.key.process}"
    )
    async with asyncio.timeout(20):
        while await value(other, sleeping) != b"1":
            await asyncio.sleep(0.02)
    other.terminate()
    return connection


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_a_login_ends_with_the_server_ready"
)
@pytest.mark.parametrize("version", [VERSION_3_0, VERSION_3_2])
@pytest.mark.parametrize("tls", [False, True])
async def test_a_running_statement_is_cancelled(server: TlsServer, version: int, tls: bool) -> None:
    upstream = upstream_of(server.port, verifying() if tls else None, NAME)
    connection = await asleep(upstream, server, version)
    key = connection.key
    assert key is not None
    # Another secret cancels nothing.
    await upstream.cancel(key._replace(secret=bytes(len(key.secret))))
    reading = asyncio.get_running_loop().create_task(connection.read())
    await asyncio.wait([reading], timeout=0.3)  # expires on purpose
    assert not reading.done() or (await reading).kind == b"T"
    await upstream.cancel(key)
    async with asyncio.timeout(20):
        frame = await reading
        while frame.kind != b"E":
            frame = await connection.read()
    assert backend.parse_error(frame).sqlstate == "57014"
    assert (await connection.read()).kind == b"Z"
    assert await value(connection, "SELECT 1") == b"1"
    connection.terminate()


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_server.py::test_a_login_ends_with_the_server_ready"
)
async def test_rows_of_any_size_arrive_and_a_limit_holds(server: TlsServer) -> None:
    upstream = upstream_of(server.port, verifying(), NAME, message_bytes=20 << 20)
    connection = await upstream.connect(login(server))
    many = "SELECT g, repeat('x', 200) FROM generate_series(1, 20000) g"
    runs = [each for each in await ask(connection, many) if each.kind == b"D"]
    assert sum(each.messages for each in runs) == 20_000
    assert len(runs) < 2_000
    numbers = [int(row[0] or b"") for run in runs for row in backend.rows(run)]
    assert numbers == list(range(1, 20_001))
    long = await value(connection, f"SELECT repeat('x', {10 << 20})")
    assert long == b"x" * (10 << 20)
    with pytest.raises(ProtocolFault, match="over the limit of 20,971,520"):
        await value(connection, f"SELECT repeat('x', {20 << 20})")
    connection.abort()


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_connection.py::test_a_loss_is_noticed_while_nothing_is_read"
)
async def test_a_backend_that_is_ended_is_noticed(server: TlsServer) -> None:
    upstream = upstream_of(server.port, verifying(), NAME)
    connection, other = [await upstream.connect(login(server)) for _ in range(2)]
    assert connection.key is not None
    ended = await value(other, f"SELECT pg_terminate_backend({connection.key.process})")
    assert ended == b"t"
    async with asyncio.timeout(20):
        await connection.lost
    # Its last words can still be read.
    last = backend.parse_error(await connection.read())
    assert (last.severity, last.sqlstate) == ("FATAL", "57P01")
    with pytest.raises(ConnectionLost):
        await connection.read()
    other.terminate()
    await other.lost
    await all_freed(upstream)


async def all_kinds(connection: ServerConnection, reading: asyncio.Task[Frame]) -> list[bytes]:
    """Return the kinds of all frames up to the connection's end, the first from `reading`."""
    kinds = []
    try:
        kinds.append((await reading).kind)
        while True:
            kinds.append((await connection.read()).kind)
    except ConnectionLost:
        return kinds


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_connection.py::test_a_loss_is_noticed_while_nothing_is_read"
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGQUIT])
async def test_a_server_that_is_killed_is_noticed(how: signal.Signals) -> None:
    with running_postgres(authority().issue(NAME), authority(), ACCESS, ROLES) as server:
        upstream = upstream_of(server.port, verifying(), NAME)
        connection = await asleep(upstream, server, VERSION_3_2)
        reading = asyncio.get_running_loop().create_task(connection.read())
        await asyncio.to_thread(server.stop, how)
        async with asyncio.timeout(20):
            await connection.lost
        # Its last words, if it had time for any.
        kinds = await all_kinds(connection, reading)
        assert set(kinds) <= {b"T", b"N", b"E"}
        with pytest.raises(OSError, match=r"[Cc]onnect"):
            await upstream.connect(login(server))
        await all_freed(upstream)
