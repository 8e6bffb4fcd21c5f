"""Sessions of psycopg2, which speaks the simple protocol alone."""

from __future__ import annotations

import functools
import io
from typing import Any

import psycopg2
import psycopg2.extras

from tests.sidecar.proxy.postgres.drivers.transcript import (
    EVERY_KIND,
    FAILING,
    ODD_KINDS,
    TEN_THOUSAND,
    Recorder,
    Transcript,
)
from tests.support.postgres_wire import Address


def sync(address: Address) -> Transcript:
    """Run reads, errors, transactions, cursors, several statements in a text."""
    seen = Recorder()
    connection = connected(address)
    cursor = connection.cursor()

    def rows(query: str, values: Any = None) -> Any:
        cursor.execute(query, values)
        return cursor.fetchall()

    seen.note("parameters", [connection.encoding, connection.server_version])
    seen.note("rows", rows("SELECT id, title FROM tickets WHERE id < %s ORDER BY id", (4,)))
    seen.note("columns", [(each.name, each.type_code) for each in cursor.description])
    seen.note("tag", cursor.statusmessage)
    for name, query in {"kinds": EVERY_KIND, "odd kinds": ODD_KINDS}.items():
        seen.note(name, rows(query))
    for value in (1, 2.5, "it's", True, None, b"\x00", [1, 2]):
        seen.note(f"parameter {value!r}", rows("SELECT %s", (value,)))
    seen.note("large", len(rows(TEN_THOUSAND)))
    connection.commit()
    for name, query in FAILING.items():
        seen.fails(name, functools.partial(rows, query))
        seen.fails(f"{name}, and again", lambda: rows("SELECT 1"))
        connection.rollback()
    _transactions(connection, seen)
    cursor.execute("SELECT public.remark('from psycopg2')")
    seen.note("notices", [notice.splitlines()[0] for notice in connection.notices])
    connection.rollback()
    connection.close()
    return seen.transcript


def server_cursors(address: Address) -> Transcript:
    """Run named cursors, which are `DECLARE` and `FETCH`."""
    seen = Recorder()
    connection = connected(address)
    with connection.cursor("named") as cursor:
        cursor.itersize = 900
        cursor.execute(TEN_THOUSAND)
        seen.note("sum of all", sum(number for number, _ in cursor))
    with connection.cursor("scrolling", scrollable=True) as cursor:
        cursor.execute("SELECT id FROM tickets ORDER BY id")
        cursor.scroll(5)
        seen.note("sixth", cursor.fetchone())
        cursor.scroll(-1)
        seen.note("sixth again", cursor.fetchone())
    with connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
        cursor.execute("SELECT id, title FROM articles ORDER BY id LIMIT 2")
        seen.note("as dicts", [dict(row) for row in cursor.fetchall()])
    connection.close()
    return seen.transcript


def copy(address: Address) -> Transcript:
    """Run `COPY … TO STDOUT`, which a sidecar refuses, and a read on the same connection."""
    seen = Recorder()
    connection = connected(address)
    cursor = connection.cursor()

    def copied() -> int:
        target = io.StringIO()
        cursor.copy_expert("COPY tickets TO STDOUT", target)
        return len(target.getvalue())

    seen.fails("copy", copied)
    connection.rollback()
    cursor.execute("SELECT 1")
    seen.note("afterwards", cursor.fetchone())
    connection.close()
    return seen.transcript


def connected(address: Address) -> Any:
    """Connect without TLS."""
    return psycopg2.connect(
        host=address.host,
        port=address.port,
        dbname=address.database,
        user=address.user,
        password=address.password,
        sslmode="disable",
    )


def _transactions(connection: Any, seen: Recorder) -> None:
    cursor = connection.cursor()
    with connection:
        cursor.execute("SELECT 1")
        cursor.execute("SAVEPOINT s")
        seen.fails("in a savepoint", lambda: cursor.execute("SELECT 1/0"))
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        cursor.execute("SELECT 2")
        seen.note("after the savepoint", cursor.fetchone())
    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
    cursor.execute("SHOW transaction_isolation")
    seen.note("isolation", cursor.fetchone())
    connection.rollback()
    connection.set_session(isolation_level="DEFAULT", readonly=False)
    connection.autocommit = True
    cursor.execute("COMMIT")
    seen.note("tag of a commit", cursor.statusmessage)
    cursor.execute("SELECT now() = now()")
    seen.note("in autocommit", cursor.fetchone())
    connection.autocommit = False
