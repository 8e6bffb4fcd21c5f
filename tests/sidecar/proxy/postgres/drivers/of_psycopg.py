"""Sessions of psycopg 3: synchronous, asynchronous, pipelined, with server cursors, in binary."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, LiteralString

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from psycopg.types import TypeInfo
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo
from psycopg.types.json import Jsonb

from tests.sidecar.proxy.postgres.drivers.transcript import (
    EVERY_KIND,
    FAILING,
    ODD_KINDS,
    TEN_THOUSAND,
    Recorder,
    Transcript,
    described,
)
from tests.support.postgres_wire import Address


def sync(address: Address) -> Transcript:
    """Run the quick start, types, errors, transactions and savepoints."""
    seen = Recorder()
    with connected(address, seen) as connection:
        seen.note("encoding", connection.info.encoding)
        seen.note("server", connection.info.server_version)
        seen.note("user", connection.execute("SELECT current_user").fetchone())
        _reads(connection, seen)
        connection.commit()
        _transactions(connection, seen)
        connection.rollback()
        _prepared(connection, seen)
        connection.rollback()
        _types_of_its_own(connection, seen)
        connection.execute("SELECT public.remark('from psycopg')")
        connection.commit()
    seen.note("closed", connection.closed)
    return seen.transcript


def binary(address: Address) -> Transcript:
    """Run the types with results and parameters in binary."""
    seen = Recorder()
    with connected(address, seen) as connection, connection.cursor(binary=True) as cursor:
        for name, query in {"kinds": EVERY_KIND, "odd kinds": ODD_KINDS}.items():
            seen.note(name, cursor.execute(query).fetchall())
        given: list[Any] = [7, 2**40, 1.5, "text", b"\x00\xff", True, None, [1, 2]]
        for value in given:
            answer = cursor.execute("SELECT %b", (value,), binary=True)
            kinds = [column.type_code for column in answer.description or ()]
            seen.note(f"parameter {value!r}", [answer.fetchone(), kinds])
        cursor.execute("SELECT n FROM numbers WHERE n = ANY(%b) ORDER BY n", ([3, 1, 2],))
        seen.note("array as a parameter", cursor.fetchall())
    return seen.transcript


def server_cursors(address: Address) -> Transcript:
    """Run cursors that the server keeps: forward, scrolling, held, stolen, streamed."""
    seen = Recorder()
    with connected(address, seen) as connection:
        with connection.cursor("forward") as cursor:
            cursor.execute(TEN_THOUSAND)
            seen.note("description", [column.name for column in cursor.description or ()])
            seen.note("first", cursor.fetchmany(3))
            seen.note("count of the rest", len(cursor.fetchall()))
        with connection.cursor("scrolling", scrollable=True) as cursor:
            cursor.execute("SELECT id, title FROM tickets ORDER BY id")
            cursor.scroll(10)
            seen.note("eleventh", cursor.fetchone())
            cursor.scroll(0, mode="absolute")
            seen.note("first again", cursor.fetchone())
        with connection.cursor("in_parts") as cursor:
            cursor.itersize = 700
            cursor.execute(TEN_THOUSAND)
            seen.note("sum of all", sum(number for number, _ in cursor))
        connection.execute("DECLARE own CURSOR FOR SELECT id FROM tickets ORDER BY id")
        stolen = psycopg.ServerCursor(connection, "own")
        seen.note("of another statement", stolen.fetchmany(2))
        stolen.close()
        connection.commit()
        seen.fails("after its transaction", lambda: connection.execute("FETCH ALL own"))
        connection.rollback()
        with connection.cursor() as cursor:
            rows = cursor.stream("SELECT n FROM numbers WHERE n < %s ORDER BY n", (5,))
            seen.note("streamed", list(rows))
        cursors = connection.execute("SELECT name, statement FROM pg_cursors")
        seen.note("open cursors", cursors.fetchall())
    return seen.transcript


def pipeline(address: Address) -> Transcript:
    """Run statements in pipeline mode: results in order, an error, what stands behind it."""
    seen = Recorder()
    if not pq.version() >= 140000:
        return seen.transcript
    with connected(address, seen, autocommit=True) as connection:
        with connection.pipeline():
            cursors = [
                connection.execute("SELECT title FROM tickets WHERE id = %s", (number,))
                for number in range(1, 30)
            ]
            seen.note("in order", [cursor.fetchone() for cursor in cursors])
        first = connection.cursor()
        try:
            with connection.pipeline() as line:
                first.execute("SELECT 1")
                failing = connection.execute("SELECT 1/0")
                behind = connection.execute("SELECT 2")
                line.sync()
                seen.note("before the error", first.fetchone())
                failing.fetchone()
                seen.note("behind the error", behind.fetchone())
        except psycopg.Error as error:
            seen.note("error", described(error))
        seen.note("afterwards", connection.execute("SELECT 3").fetchone())
        with connection.pipeline() as line, connection.transaction():
            connection.execute("SELECT 4")
            line.sync()
            seen.note("in a transaction", connection.info.transaction_status.name)
        with connection.pipeline(), connection.cursor() as cursor:
            query = "SELECT n FROM numbers WHERE n = %s"
            cursor.executemany(query, [(n,) for n in range(50)], returning=True)
            found = [cursor.fetchall()]
            while cursor.nextset():
                found.append(cursor.fetchall())
            seen.note("many at once", found)
    return seen.transcript


def asynchronous(address: Address) -> Transcript:
    """Run the asynchronous connection: reads, a cancel, concurrent sessions."""
    seen = Recorder()
    asyncio.run(_asynchronous(address, seen))
    return seen.transcript


def copy(address: Address) -> Transcript:
    """Run `COPY … TO STDOUT`, which a sidecar refuses, and a read on the same connection."""
    seen = Recorder()
    with connected(address, seen) as connection:

        def copied() -> int:
            with connection.cursor().copy("COPY tickets TO STDOUT") as copying:
                return sum(len(bytes(block)) for block in copying)

        seen.fails("copy", copied)
        connection.rollback()
        seen.note("afterwards", connection.execute("SELECT 1").fetchone())
    return seen.transcript


def connected(
    address: Address, seen: Recorder, *, autocommit: bool = False
) -> psycopg.Connection[Any]:
    """Connect, and note the notices."""
    connection = psycopg.connect(_place(address), autocommit=autocommit)
    connection.add_notice_handler(
        lambda said: seen.note(
            "notice",
            [said.severity, said.sqlstate, said.message_primary, said.message_detail],
        )
    )
    return connection


def _place(address: Address) -> str:
    return make_conninfo(
        host=address.host,
        port=address.port,
        dbname=address.database,
        user=address.user,
        password=address.password,
        sslmode="disable",
    )


def _reads(connection: psycopg.Connection[Any], seen: Recorder) -> None:
    cursor = connection.execute("SELECT id, title, status FROM tickets WHERE id < 4 ORDER BY id")
    columns = [(each.name, each.type_code) for each in cursor.description or ()]
    seen.note("columns", columns)
    seen.note("tag", cursor.statusmessage or "")
    seen.note("rows", cursor.fetchall())
    for name, query in {"kinds": EVERY_KIND, "odd kinds": ODD_KINDS}.items():
        seen.note(name, connection.execute(query).fetchall())
    for value in (1, 2.5, "it's", True, None, b"\x00", [1, None], {"a": 1}):
        dumped = Jsonb(value) if isinstance(value, dict) else value
        answer = connection.execute("SELECT %s", (dumped,))
        kinds = [column.type_code for column in answer.description or ()]
        seen.note(f"parameter {value!r}", [answer.fetchone(), kinds])
    with connection.cursor(row_factory=dict_row) as rows:
        seen.note("as dicts", rows.execute("SELECT id, title FROM articles LIMIT 2").fetchall())
    composed = sql.SQL("SELECT {} FROM {} WHERE id = {}").format(
        sql.Identifier("title"), sql.Identifier("public", "tickets"), sql.Literal(7)
    )
    seen.note("composed", connection.execute(composed).fetchall())
    seen.note("no rows", connection.execute("SELECT 1 WHERE false").fetchall())
    seen.note("no columns", connection.execute("SELECT FROM tickets WHERE id < 3").fetchall())
    seen.note("large", len(connection.execute(TEN_THOUSAND).fetchall()))
    client = psycopg.ClientCursor(connection)
    seen.note("bound by the client", client.execute("SELECT %s + 1", (2,)).fetchall())


def _transactions(connection: psycopg.Connection[Any], seen: Recorder) -> None:
    for name, query in FAILING.items():
        seen.fails(name, functools.partial(_fetched, connection, query))
        seen.fails(f"{name}, and again", lambda: connection.execute("SELECT 1"))
        connection.rollback()
    with connection.transaction():
        seen.note("in a transaction", connection.info.transaction_status.name)

        def inner() -> None:
            with connection.transaction("inner"):
                connection.execute("SELECT 1/0")

        seen.fails("in a savepoint", inner)
        seen.note("after the savepoint", connection.execute("SELECT 5").fetchone())
        _undone(connection, seen)
    connection.read_only = True
    seen.note("read only", connection.execute("SHOW transaction_read_only").fetchone())
    connection.rollback()
    connection.read_only = None
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    seen.note("isolation", connection.execute("SHOW transaction_isolation").fetchone())
    connection.rollback()
    connection.isolation_level = None
    connection.execute("SET statement_timeout = 100")
    slow = "SELECT count(*) FROM generate_series(1, 1000000000)"
    seen.fails("timeout", lambda: connection.execute(slow))
    connection.rollback()
    connection.autocommit = True
    seen.note("warning", connection.execute("ROLLBACK").statusmessage or "")
    connection.autocommit = False


def _undone(connection: psycopg.Connection[Any], seen: Recorder) -> None:
    with connection.transaction() as own:
        seen.note("in another", connection.execute("SELECT 6").fetchone())
        raise psycopg.Rollback(own)


def _fetched(connection: psycopg.Connection[Any], query: LiteralString) -> object:
    return connection.execute(query).fetchall()


def _prepared(connection: psycopg.Connection[Any], seen: Recorder) -> None:
    query = "SELECT title FROM tickets WHERE id = %s"
    for number in range(8):
        found = connection.execute(query, (number,), prepare=True).fetchall()
        seen.note(f"prepared {number}", found)
    connection.execute("DEALLOCATE ALL")
    connection.commit()
    connection.execute("PREPARE own(int) AS SELECT title FROM tickets WHERE id = $1")
    seen.note("executed", connection.execute("EXECUTE own(3)").fetchall())
    names = connection.execute("SELECT name FROM pg_prepared_statements WHERE from_sql")
    seen.note("prepared by text", names.fetchall())
    with connection.cursor() as cursor:
        cursor.executemany(query, [(1,), (2,)], returning=True)
        seen.note("first of many", cursor.fetchall())
        seen.note("another", cursor.nextset())
        seen.note("second of many", cursor.fetchall())


def _types_of_its_own(connection: psycopg.Connection[Any], seen: Recorder) -> None:
    place = CompositeInfo.fetch(connection, "place")
    mood = EnumInfo.fetch(connection, "mood")
    assert place is not None
    assert mood is not None
    seen.note("fields of a type", list(place.field_names))
    seen.note("labels of a type", list(mood.labels))
    seen.note("no such type", TypeInfo.fetch(connection, "no_such_type"))
    register_composite(place, connection)
    answer = connection.execute("SELECT stood FROM kinds WHERE id = 1").fetchone()
    seen.note("composite", str(answer))


async def _asynchronous(address: Address, seen: Recorder) -> None:
    async with await psycopg.AsyncConnection.connect(_place(address)) as connection:
        cursor = await connection.execute("SELECT id, title FROM tickets WHERE id < 3")
        seen.note("rows", await cursor.fetchall())
        async with connection.cursor("held_by_server") as rows:
            await rows.execute(TEN_THOUSAND)
            seen.note("count", len([row async for row in rows]))
        async with connection.transaction():
            cursor = await connection.execute("SELECT 1")
        await connection.commit()
        slow = "SELECT count(*) FROM generate_series(1, 1000000000)"
        running = asyncio.ensure_future(connection.execute(slow))
        await asyncio.sleep(0.3)  # The cancel must meet a statement that runs.
        await connection.cancel_safe()
        await seen.fails_async("cancelled", lambda: running)
        await connection.rollback()
        cursor = await connection.execute("SELECT 2")
        seen.note("after the cancel", await cursor.fetchone())

    async def one(number: int) -> object:
        async with await psycopg.AsyncConnection.connect(_place(address)) as own:
            cursor = await own.execute("SELECT title FROM tickets WHERE id = %s", (number,))
            return await cursor.fetchone()

    seen.note("side by side", await asyncio.gather(*map(one, range(1, 9))))
