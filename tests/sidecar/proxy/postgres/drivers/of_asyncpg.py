"""Sessions of asyncpg: a connection, and its pool, which resets a connection between uses."""

from __future__ import annotations

import asyncio
import functools
import io
from typing import Any

import asyncpg

from tests.sidecar.proxy.postgres.drivers.transcript import (
    EVERY_KIND,
    FAILING,
    ODD_KINDS,
    TEN_THOUSAND,
    Recorder,
    Transcript,
)
from tests.support.postgres_wire import Address


def connection(address: Address) -> Transcript:
    """Run reads, types, errors, transactions, cursors and prepared statements."""
    seen = Recorder()
    asyncio.run(_connection(address, seen))
    return seen.transcript


def pool(address: Address) -> Transcript:
    """Run more tasks than the pool has connections."""
    seen = Recorder()
    asyncio.run(_pool(address, seen))
    return seen.transcript


def copy(address: Address) -> Transcript:
    """Run `COPY … TO STDOUT`, which a sidecar refuses, and a read on the same connection."""
    seen = Recorder()
    asyncio.run(_copy(address, seen))
    return seen.transcript


def place(address: Address) -> dict[str, Any]:
    """Return the arguments of `connect`."""
    return {
        "host": address.host,
        "port": address.port,
        "database": address.database,
        "user": address.user,
        "password": address.password,
        "ssl": False,
    }


async def _connection(address: Address, seen: Recorder) -> None:
    own = await asyncpg.connect(**place(address))
    own.add_log_listener(
        lambda _, said: seen.note("notice", [said.severity, said.sqlstate, said.message])
    )
    seen.note("version", str(own.get_server_version()))
    seen.note(
        "rows", _rows(await own.fetch("SELECT id, title FROM tickets WHERE id < 4 ORDER BY 1"))
    )
    for name, query in {"kinds": EVERY_KIND, "odd kinds": ODD_KINDS}.items():
        seen.note(name, _rows(await own.fetch(query)))
    for value, kind in ((1, "int8"), (2.5, "float8"), ("it's", "text"), (b"\x00", "bytea")):
        seen.note(f"parameter {value!r}", await own.fetchval(f"SELECT $1::{kind}", value))
    seen.note("array", await own.fetchval("SELECT $1::int[]", [1, None]))
    seen.note("large", len(await own.fetch(TEN_THOUSAND)))
    seen.note("script", await own.execute("SET application_name = 'crm'; RESET application_name"))
    for name, query in FAILING.items():
        await seen.fails_async(name, functools.partial(own.fetch, query))
        await seen.fails_async(f"{name}, by a script", functools.partial(own.execute, query))
    await _transactions(own, seen)
    await _statements(own, seen)
    slow = "SELECT count(*) FROM generate_series(1, 1000000000)"
    # expires on purpose
    await seen.fails_async("timeout of the driver", lambda: own.fetch(slow, timeout=0.3))
    seen.note("after the timeout", await own.fetchval("SELECT 3"))
    await own.fetchval("SELECT public.remark('from asyncpg')")
    await own.reset()
    seen.note("after a reset", await own.fetchval("SELECT 4"))
    await own.close()


async def _transactions(own: asyncpg.Connection, seen: Recorder) -> None:
    async with own.transaction(isolation="repeatable_read", readonly=True):
        seen.note("isolation", await own.fetchval("SHOW transaction_isolation"))

        async def inner() -> None:
            async with own.transaction():
                await own.execute("SELECT 1/0")

        await seen.fails_async("in a savepoint", inner)
        seen.note("after the savepoint", await own.fetchval("SELECT 5"))
        found = [row["n"] async for row in own.cursor(TEN_THOUSAND, prefetch=1000)]
        seen.note("by a cursor", [len(found), sum(found)])
        cursor = await own.cursor("SELECT id FROM tickets ORDER BY id")
        seen.note("first", await cursor.fetchrow())
        seen.note("skipped", await cursor.forward(5))
        seen.note("seventh", _rows(await cursor.fetch(1)))
    aborted = own.transaction()
    await aborted.start()
    await seen.fails_async("in a transaction", lambda: own.fetch("SELECT 1/0"))
    await seen.fails_async("in an aborted one", lambda: own.fetch("SELECT 1"))
    await aborted.rollback()


async def _statements(own: asyncpg.Connection, seen: Recorder) -> None:
    statement = await own.prepare("SELECT id, title FROM tickets WHERE id = $1")
    seen.note("parameters", [kind.name for kind in statement.get_parameters()])
    seen.note("attributes", [(each.name, each.type.name) for each in statement.get_attributes()])
    for number in range(1, 7):
        seen.note(f"prepared {number}", _rows(await statement.fetch(number)))
    many = await own.fetchmany("SELECT title FROM tickets WHERE id = $1", [(1,), (2,)])
    seen.note("many", _rows(many))
    introspected = await own.fetchrow("SELECT stood, feelings, several FROM kinds WHERE id = 1")
    seen.note("types that it looks up", list(introspected.values()))
    seen.note("explained", (await statement.explain(1))[0]["Plan"]["Node Type"])


async def _pool(address: Address, seen: Recorder) -> None:
    async with asyncpg.create_pool(**place(address), min_size=2, max_size=3) as connections:

        async def one(number: int) -> Any:
            async with connections.acquire() as own, own.transaction():
                await own.execute("SET LOCAL jit = off")
                return await own.fetchval("SELECT title FROM tickets WHERE id = $1", number)

        seen.note("in turn", await asyncio.gather(*map(one, range(1, 30))))
        async with connections.acquire() as own:
            await own.execute("SET statement_timeout = 5000")
        seen.note("reset", await connections.fetchval("SHOW statement_timeout"))
        await seen.fails_async("error", lambda: connections.fetchval("SELECT 1/0"))
        seen.note("afterwards", await connections.fetchval("SELECT 1"))


async def _copy(address: Address, seen: Recorder) -> None:
    own = await asyncpg.connect(**place(address))
    target = io.BytesIO()
    await seen.fails_async("copy", lambda: own.copy_from_table("tickets", output=target))
    seen.note("afterwards", await own.fetchval("SELECT 1"))
    await own.close()


def _rows(rows: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]
