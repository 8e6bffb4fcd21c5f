"""Sessions of pg8000, a driver in Python: its DB-API and its native interface."""

from __future__ import annotations

import functools
import io
from typing import Any

import pg8000.dbapi
import pg8000.native

from tests.sidecar.proxy.postgres.drivers.transcript import (
    EVERY_KIND,
    FAILING,
    ODD_KINDS,
    TEN_THOUSAND,
    Recorder,
    Transcript,
)
from tests.support.postgres_wire import Address


def dbapi(address: Address) -> Transcript:
    """Run reads, types, errors, transactions and savepoints."""
    seen = Recorder()
    connection = pg8000.dbapi.connect(**_place(address))
    cursor = connection.cursor()

    def rows(query: str, values: tuple[Any, ...] = ()) -> Any:
        cursor.execute(query, values)
        return cursor.fetchall()

    seen.note("rows", rows("SELECT id, title FROM tickets WHERE id < %s ORDER BY id", (4,)))
    seen.note("columns", [column[:2] for column in cursor.description])
    for name, query in {"kinds": EVERY_KIND, "odd kinds": ODD_KINDS}.items():
        seen.note(name, rows(query))
    for value in (1, 2.5, "it's", True, b"\x00", [1, 2]):
        seen.note(f"parameter {value!r}", rows("SELECT %s", (value,)))
    seen.note("large", len(rows(TEN_THOUSAND)))
    connection.commit()
    for name, query in FAILING.items():
        seen.fails(name, functools.partial(rows, query))
        seen.fails(f"{name}, and again", lambda: rows("SELECT 1"))
        connection.rollback()
    rows("SELECT 1")
    cursor.execute("SAVEPOINT s")
    seen.fails("in a savepoint", lambda: rows("SELECT 1/0"))
    cursor.execute("ROLLBACK TO SAVEPOINT s")
    seen.note("after the savepoint", rows("SELECT 2"))
    cursor.execute("DECLARE own CURSOR FOR SELECT id FROM tickets ORDER BY id")
    seen.note("by a cursor", rows("FETCH 3 FROM own"))
    connection.rollback()
    rows("SELECT public.remark('from pg8000')")
    seen.note("notices", [notice[b"M"] for notice in connection.notices])
    connection.close()
    return seen.transcript


def native(address: Address) -> Transcript:
    """Run the native interface: named parameters, prepared statements, autocommit."""
    seen = Recorder()
    connection = pg8000.native.Connection(**_place(address))
    seen.note("rows", connection.run("SELECT id, title FROM tickets WHERE id = :id", id=3))
    seen.note("columns", [column["name"] for column in connection.columns])
    prepared = connection.prepare("SELECT title FROM tickets WHERE id = :id")
    seen.note("prepared", [prepared.run(id=number) for number in range(1, 8)])
    prepared.close()
    connection.run("START TRANSACTION")
    seen.note("in a transaction", connection.run("SELECT 1"))
    seen.fails("error", lambda: connection.run("SELECT 1/0"))
    seen.fails("and again", lambda: connection.run("SELECT 1"))
    connection.run("ROLLBACK")
    seen.note("after the rollback", connection.run("SELECT 2"))
    seen.note("parameters", sorted(map(str, connection.parameter_statuses)))
    connection.close()
    return seen.transcript


def copy(address: Address) -> Transcript:
    """Run `COPY … TO STDOUT`, which a sidecar refuses, and a read on the same connection."""
    seen = Recorder()
    connection = pg8000.native.Connection(**_place(address))
    target = io.BytesIO()
    seen.fails("copy", lambda: connection.run("COPY tickets TO STDOUT", stream=target))
    seen.note("afterwards", connection.run("SELECT 1"))
    connection.close()
    return seen.transcript


def _place(address: Address) -> dict[str, Any]:
    return {
        "host": address.host,
        "port": address.port,
        "database": address.database,
        "user": address.user,
        "password": address.password,
    }
