"""Writes a batch to PostgreSQL in one statement: entries, openings, counts, the head's move, and
the spool's if the records come from one.

Columns travel as arrays, so a batch of any size is one round trip and one plan. (COPY would take
one more round trip per table, and PostgreSQL refuses it under row-level security.) The driver
spends longer inspecting an array's items than encoding them. So where a table gets one row per
record, each column of numbers or identifiers travels as a single text, which PostgreSQL splits.
Knows the rows that `chain` and `counters` pass to it, and nothing else of either.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table

from control_api.store.counters.candidates import ON_CONFLICT
from control_api.store.schema.log import (
    candidate_counts,
    first_accesses,
    log_entries,
    openings,
    tallies,
)

_ARRAY_TYPES = {"BIGINT": "bigint[]", "SMALLINT": "smallint[]", "TEXT": "text[]", "BLOB": "bytea[]"}
MAX_ROWS = 4096
"""The maximum number of rows of a table in one statement, because a statement has a time limit."""
_Rows = Sequence[tuple[Any, ...]]
# Control characters: no identifier contains one.
_SEPARATOR, _NULL = "\x1e", "\x1d"


class SpoolMove(NamedTuple):
    """The move of a spool's row when a batch of its records is written: from the last record that
    the log held before (`held_n`, `held_hash`) to the last one of the batch. `time` is in
    microseconds since 1970 UTC."""

    source: str
    instance: str
    held_n: int
    held_hash: bytes
    n: int
    hash: bytes
    time: int


_NO_SPOOL = (None,) * len(SpoolMove._fields)


def write(connection: Connection, statement: str, values: tuple[Any, ...]) -> bool:
    """Run the batch's statement. Returns False, having written nothing, if the head or the spool is
    not where the batch began."""
    return connection.exec_driver_sql(statement, values).rowcount == 1


def write_excess(
    connection: Connection, tenant_id: str, table: Table, rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Write the first rows of a table, and return the last `MAX_ROWS` or fewer, which are left for
    `write`. Use it only within a transaction."""
    while len(rows) > MAX_ROWS:
        columns = (tenant_id, *_columns(table, rows[:MAX_ROWS]))
        connection.exec_driver_sql(_insertion(table, 2, "SELECT $1::text AS tenant_id"), columns)
        rows = rows[MAX_ROWS:]
    return rows


def statement(
    tenant_id: str, head: tuple[Any, ...], spool: SpoolMove | None, tables: Sequence[_Rows]
) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that writes the whole batch or nothing, and its parameters. Sent alone,
    it is a transaction of its own.

    `tables` are the rows of the entries, the openings, the counts and the first accesses, and of
    the candidates' counts if the tenant has candidates. Rows hold every column but the tenant, in
    order. `head` holds the size and leaf at which the chain began, then the new size, leaf, time
    and frontier.
    """
    values: list[Any] = [tenant_id, *head, *(spool or _NO_SPOOL)]
    for table, rows in zip(_TABLES, tables, strict=False):
        values += _columns(table, rows)
    return _STATEMENTS[len(tables)], tuple(values)


def _columns(table: Table, rows: _Rows) -> Iterable[Any]:
    """Return one value per column of the rows, of the type that `_array` expects."""
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * (len(table.c) - 1)
    return map(_joined, _kinds(table), columns) if table in _ONE_ROW_PER_RECORD else columns


def _joined(kind: str, column: Sequence[Any]) -> Any:
    if kind == "BIGINT":
        return " ".join(map(str, column))
    if kind != "TEXT":
        return column
    text = _SEPARATOR.join([_NULL if each is None else each for each in column])
    # An identifier that contains the separator would shift the values of all rows after it.
    if column and text.count(_SEPARATOR) != len(column) - 1:
        raise ValueError("an identifier contains the control character U+001E")
    return text


def _statement(tables: int) -> str:
    """Return a statement that writes the first `tables` of `_TABLES`.

    `$1` is the tenant, `$2` to `$7` the head, `$8` to `$14` the spool or NULL; then one array per
    column, table after table.

    The head moves first, and the rows are joined to the moved head. So no rows are inserted if it
    does not move, and of two concurrent writers the second waits at the head for the first.
    """
    spool = "tenant_id = $1 AND source = $8 AND instance = $9"
    # A spool moves only together with the head, so while the head is where the batch began, what
    # this statement reads of the spool is current.
    move = (
        "UPDATE log_heads SET size = $4, last_leaf = $5, last_ts = $6, frontier = $7"  # noqa: S608
        " WHERE tenant_id = $1 AND size = $2 AND last_leaf = $3 AND ($8::text IS NULL OR EXISTS"
        f" (SELECT FROM sources WHERE {spool} AND n = $10 AND hash = $11)) RETURNING tenant_id"
    )
    move_spool = (
        "UPDATE sources SET n = $12, hash = $13, updated_at = $14"  # noqa: S608  # constants only
        f" WHERE {spool} AND EXISTS (SELECT FROM moved)"
    )
    parts = [f"moved AS ({move})", f"sources_ AS ({move_spool})"]
    at = 15
    for table, conflict in list(_TABLES.items())[:tables]:
        rows = _insertion(table, at, "SELECT tenant_id FROM moved")
        parts.append(f"{table.name}_ AS ({rows} {conflict})")
        at += len(table.c) - 1
    return f"WITH {', '.join(parts)} SELECT 1 FROM moved"  # noqa: S608  # constants only


def _insertion(table: Table, at: int, tenant: str) -> str:
    """Return a statement that inserts the arrays from parameter `at` on, for the tenant that the
    query `tenant` selects."""
    wanted = [column for column in table.c if column.name != "tenant_id"]
    arrays = ", ".join(
        _array(table, str(column.type), place) for place, column in enumerate(wanted, at)
    )
    names = ", ".join(column.name for column in wanted)
    rows = f"SELECT m.tenant_id, n.* FROM ({tenant}) AS m, unnest({arrays}) AS n"  # noqa: S608
    return f"INSERT INTO {table.name} (tenant_id, {names}) {rows}"  # constants only


def _array(table: Table, kind: str, place: int) -> str:
    if table in _ONE_ROW_PER_RECORD and kind == "TEXT":
        return f"string_to_array(${place}::text, E'\\x1e', E'\\x1d')"
    if table in _ONE_ROW_PER_RECORD and kind == "BIGINT":
        return f"string_to_array(${place}::text, ' ')::bigint[]"
    return f"${place}::{_ARRAY_TYPES[kind]}"


@cache
def _kinds(table: Table) -> list[str]:
    return [str(column.type) for column in table.c if column.name != "tenant_id"]


_ONE_ROW_PER_RECORD = (log_entries, openings)
# The tables that a batch fills, each with its conflict clause: a count is added to the stored one.
_TABLES: dict[Table, str] = {
    log_entries: "",
    openings: "",
    tallies: (
        "ON CONFLICT (tenant_id, facet, value, bucket) DO UPDATE SET"
        " allowed = tallies.allowed + excluded.allowed, denied = tallies.denied + excluded.denied,"
        " last_ts = greatest(tallies.last_ts, excluded.last_ts)"
    ),
    first_accesses: (
        "ON CONFLICT (tenant_id, agent_role, source_id) DO UPDATE SET first_ts = excluded.first_ts"
        " WHERE excluded.first_ts < first_accesses.first_ts"
    ),
    # Last, because the statement of a tenant without candidates leaves it out.
    candidate_counts: ON_CONFLICT,
}
_STATEMENTS = {tables: _statement(tables) for tables in (len(_TABLES) - 1, len(_TABLES))}
