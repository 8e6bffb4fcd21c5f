"""Clients of PostgreSQL through the engine alone: an agent's connection, a server's, and nothing in
between that reads what passes."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator

import asyncpg
import psycopg
import pytest

from deploy.local.sample_postgres import installed
from sidecar.http.tls_contexts import client_context, server_context
from sidecar.postgres.frames import ProtocolFault
from sidecar.postgres.server import Login
from sidecar.postgres.startup import ALPN, VERSION_3_0, VERSION_3_2, CancelRequest, Startup
from sidecar.settings.model import UpstreamTls
from tests.sidecar.postgres.relay import Relay, relaying, upstream_of
from tests.support.certificates import authority
from tests.support.postgres_with_tls import TlsServer, running_postgres
from tests.support.waiting import until_async

NAME = "db.test"
ROLES = "CREATE ROLE agent LOGIN PASSWORD :password\n"
ACCESS = ["hostssl all all 127.0.0.1/32 scram-sha-256"]


@pytest.fixture(scope="module")
def server() -> Iterator[TlsServer]:
    with running_postgres(authority().issue(NAME), authority(), ACCESS, ROLES) as running:
        yield running


@pytest.fixture(scope="module")
def shown() -> ssl.SSLContext:
    return server_context(authority().issue("localhost"), None, (ALPN,))


def relay_to(
    server: TlsServer, context: ssl.SSLContext | None = None, password: bytes | None = None
) -> Relay:
    verifying = client_context(UpstreamTls(authority().path), (ALPN,))
    upstream = upstream_of(server.port, verifying, NAME)
    login = Login("agent", server.password, "postgres", version=VERSION_3_2)
    return Relay(upstream, login, context, password)


def conninfo(port: int, **options: object) -> str:
    place = {"host": "localhost", "hostaddr": "127.0.0.1", "port": port, "user": "any"}
    named = {**place, "dbname": "any", "sslrootcert": authority().path, **options}
    return " ".join(f"{name}={value}" for name, value in named.items())


WAYS = [
    ({"sslmode": "disable"}, False, VERSION_3_0),
    ({"sslmode": "prefer"}, False, VERSION_3_0),
    ({"sslmode": "prefer", "gssencmode": "prefer"}, True, VERSION_3_0),
    ({"sslmode": "verify-full"}, True, VERSION_3_0),
    ({"sslmode": "verify-full", "sslnegotiation": "direct"}, True, VERSION_3_0),
    ({"sslmode": "verify-full", "max_protocol_version": "3.2"}, True, VERSION_3_2),
    ({"sslmode": "disable", "max_protocol_version": "latest"}, False, VERSION_3_2),
]


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_startup.py::test_tls_begins_once_it_is_asked_for"
)
@pytest.mark.parametrize(("options", "tls", "version"), WAYS, ids=str)
async def test_psycopg_connects_in_each_way(
    server: TlsServer,
    shown: ssl.SSLContext,
    options: dict[str, object],
    tls: bool,
    version: int,
) -> None:
    relay = relay_to(server, shown if tls else None)
    async with relaying(relay) as port:
        async with await psycopg.AsyncConnection.connect(conninfo(port, **options)) as connection:
            assert connection.pgconn.ssl_in_use == tls
            cursor = await connection.execute("SELECT 1, %s::text, %b::int8", ("two", 3))
            assert await cursor.fetchall() == [(1, "two", 3)]
            with pytest.raises(psycopg.errors.DivisionByZero):
                await connection.execute("SELECT 1/0")
            await connection.rollback()
            async with connection.pipeline():
                answers = [await connection.execute("SELECT %s", (each,)) for each in range(50)]
            assert [await each.fetchone() for each in answers] == [(each,) for each in range(50)]
            async with connection.cursor("named") as named:
                await named.execute("SELECT g FROM generate_series(1, 5000) g")
                assert len(await named.fetchmany(1_500)) == 1_500
        await until_async("it has ended", lambda: relay.ended)
    assert relay.ended == [None]
    startup = relay.startups[-1]
    assert isinstance(startup, Startup)
    assert startup.version == version


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_startup.py::test_tls_begins_once_it_is_asked_for"
)
async def test_much_passes_both_ways(server: TlsServer, shown: ssl.SSLContext) -> None:
    async with relaying(relay_to(server, shown)) as port:
        connection = await psycopg.AsyncConnection.connect(conninfo(port))
        long = "x" * (12 << 20)
        cursor = await connection.execute("SELECT %s", (long,))
        assert await cursor.fetchone() == (long,)
        await connection.execute("CREATE TEMPORARY TABLE t (n int, v text)")
        async with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for each in range(30_000):
                await copy.write_row((each, "v" * 100))
        async with connection.cursor().copy("COPY t TO STDOUT") as copy:
            assert len([row async for row in copy.rows()]) == 30_000
        cursor = await connection.execute("SELECT sum(n), sum(length(v)) FROM t")
        assert await cursor.fetchone() == (sum(range(30_000)), 3_000_000)
        await connection.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_startup.py::test_tls_begins_once_it_is_asked_for"
)
async def test_a_message_over_the_limit_ends_the_connection(server: TlsServer) -> None:
    relay = relay_to(server)
    async with relaying(relay) as port:
        connection = await psycopg.AsyncConnection.connect(conninfo(port))
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("SELECT %s", ("x" * (16 << 20),))
        await connection.close()
        await until_async("it has ended", lambda: relay.ended)
    assert isinstance(relay.ended[0], ProtocolFault)


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_startup.py::test_tls_begins_once_it_is_asked_for"
)
@pytest.mark.parametrize("tls", [False, True])
async def test_asyncpg_connects(server: TlsServer, shown: ssl.SSLContext, tls: bool) -> None:
    relay = relay_to(server, shown if tls else None)
    async with relaying(relay) as port:
        context = authority().client() if tls else False
        pool = await asyncpg.create_pool(
            host="localhost",
            port=port,
            user="any",
            database="any",
            ssl=context,
            min_size=2,
            max_size=3,
        )
        try:
            values = await asyncio.gather(*(pool.fetchval("SELECT $1::int", n) for n in range(20)))
            assert values == list(range(20))
            rows = await pool.fetch("SELECT g, repeat('x', 300) FROM generate_series(1, 50000) g")
            assert len(rows) == 50_000
            async with pool.acquire() as connection, connection.transaction():
                steps = [row[0] async for row in connection.cursor("SELECT generate_series(1, 9)")]
                assert steps == list(range(1, 10))
        finally:
            await pool.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_startup.py::test_tls_begins_once_it_is_asked_for"
)
async def test_a_cancelled_statement_is_cancelled_at_the_server(
    server: TlsServer, shown: ssl.SSLContext
) -> None:
    relay = relay_to(server, shown)
    async with relaying(relay) as port:
        for options in ({}, {"max_protocol_version": "3.2"}):
            info = conninfo(port, sslmode="verify-full", **options)
            async with await psycopg.AsyncConnection.connect(info) as connection:
                running = asyncio.get_running_loop().create_task(
                    connection.execute("SELECT pg_sleep(60)")
                )
                await asyncio.sleep(0.3)
                # Over TLS, as libpq 17 does.
                await connection.cancel_safe()
                with pytest.raises(psycopg.errors.QueryCanceled):
                    await running
        direct = await asyncpg.connect(
            host="localhost", port=port, user="any", database="any", ssl=authority().client()
        )
        with pytest.raises(TimeoutError):
            await direct.execute("SELECT pg_sleep(60)", timeout=0.3)  # expires on purpose
        assert await direct.fetchval("SELECT 1") == 1
        await direct.close()
    wishes = [each for each in relay.startups if isinstance(each, CancelRequest)]
    assert [len(each.key.secret) for each in wishes] == [4, 32, 4]


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_startup.py::test_a_key_is_asked_for_as_a_password"
)
async def test_a_key_is_taken_as_a_password(server: TlsServer, shown: ssl.SSLContext) -> None:
    relay = relay_to(server, shown, b"sk_key")
    async with relaying(relay) as port:
        info = conninfo(port, sslmode="verify-full", password="sk_key")
        async with await psycopg.AsyncConnection.connect(info) as connection:
            assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)
        with pytest.raises(psycopg.OperationalError, match="the password is wrong"):
            await psycopg.AsyncConnection.connect(
                conninfo(port, sslmode="verify-full", password="other")
            )
        address = {"host": "localhost", "port": port, "user": "any", "database": "any"}
        tls = authority().client()
        direct = await asyncpg.connect(**address, ssl=tls, password="sk_key")
        assert await direct.fetchval("SELECT 1") == 1
        await direct.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/postgres/test_startup.py::test_tls_begins_once_it_is_asked_for"
)
async def test_psql_asks_simply(server: TlsServer) -> None:
    async with relaying(relay_to(server)) as port:
        place = f"--dbname=host=127.0.0.1 port={port} user=any dbname=any"
        asked = [
            "--command=SELECT 1; SELECT 2",
            "--command=\\d",
            "--command=\\dt pg_catalog.pg_cl*",
        ]
        options = ["--no-psqlrc", "--tuples-only", "--no-align"]
        command = [str(installed() / "psql"), *options, place, *asked]

        def run() -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, capture_output=True, check=False, text=True)

        ran = await asyncio.to_thread(run)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[:2] == ["1", "2"]
    assert "pg_catalog|pg_class|table|sluice" in ran.stdout
