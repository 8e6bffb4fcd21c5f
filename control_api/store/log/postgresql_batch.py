"""A batch's rows on PostgreSQL in one statement: entries, openings, counts, and the head's move.

Columns go as arrays, so a batch of any size is one round trip and one plan. (COPY would take
another for each table, and is refused where row-level security holds.) The driver looks at each
item of an array longer than it takes to encode it: where a table gets a row a record, columns of
numbers and of identifiers go as one text each, and PostgreSQL takes it apart. Knows what `chain`
and `tally` want written, and no more of either.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table

from control_api.store.schema.tables import first_accesses, log_entries, openings, tallies

_TYPES = {"BIGINT": "bigint[]", "SMALLINT": "smallint[]", "TEXT": "text[]", "BLOB": "bytea[]"}
MOST = 4096
"""Rows of a table in one statement."""
_List = list[tuple[Any, ...]]
_Rows = Sequence[tuple[Any, ...]]
_BETWEEN, _NULL = "\x1e", "\x1d"
"""Control characters, which no identifier has."""


def write(connection: Connection, values: tuple[Any, ...]) -> bool:
    """False where the head was not where the chain began: then nothing was written."""
    return connection.exec_driver_sql(STATEMENT, values).rowcount == 1


def fill(connection: Connection, tenant_id: str, table: Table, rows: _List) -> _List:
    """Write all but the last of very many rows, which `write` then does with the head: a statement
    has a time limit. Within a transaction alone."""
    while len(rows) > MOST:
        columns = (tenant_id, *_columns(table, rows[:MOST]))
        connection.exec_driver_sql(_insertion(table, 2, "SELECT $1::text AS tenant_id"), columns)
        rows = rows[MOST:]
    return rows


def values_of(
    tenant_id: str,
    head: tuple[Any, ...],
    entries: _Rows,
    opened: _Rows,
    counts: _Rows,
    accesses: _Rows,
) -> tuple[Any, ...]:
    """What `STATEMENT` takes. Rows without their tenant, of all other columns in order; `head` is
    the size and the leaf that the chain began at, then the new size, leaf, time and frontier."""
    values: list[Any] = [tenant_id, *head]
    for table, rows in zip(_FILLED, (entries, opened, counts, accesses), strict=True):
        values += _columns(table, rows)
    return tuple(values)


def _columns(table: Table, rows: _Rows) -> Iterable[Any]:
    """A value a column, of the type that `_array` says."""
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * (len(table.c) - 1)
    return map(_joined, _kinds(table), columns) if table in _PER_RECORD else columns


def _joined(kind: str, column: Sequence[Any]) -> Any:
    if kind == "BIGINT":
        return " ".join(map(str, column))
    if kind != "TEXT":
        return column
    text = _BETWEEN.join([_NULL if each is None else each for each in column])
    if column and text.count(_BETWEEN) != len(column) - 1:
        raise ValueError("a control character in an identifier")
    return text


def _statement() -> str:
    """`$1` the tenant, `$2` to `$7` the head, then an array a column, table after table.

    The head moves first, and the rows are joined to that: where it does not move, there are none,
    and of two writers the second waits at the head for the first.
    """
    move = (
        "UPDATE log_heads SET size = $4, last_leaf = $5, last_ts = $6, frontier = $7"
        " WHERE tenant_id = $1 AND size = $2 AND last_leaf = $3 RETURNING tenant_id"
    )
    parts = [f"moved AS ({move})"]
    at = 8
    for table, then in _FILLED.items():
        rows = _insertion(table, at, "SELECT tenant_id FROM moved")
        parts.append(f"{table.name}_ AS ({rows} {then})")
        at += len(table.c) - 1
    return f"WITH {', '.join(parts)} SELECT 1 FROM moved"  # noqa: S608  # of constants


def _insertion(table: Table, at: int, of: str) -> str:
    """Of arrays from parameter `at` on, for the tenant that `of` selects."""
    wanted = [column for column in table.c if column.name != "tenant_id"]
    arrays = ", ".join(
        _array(table, str(column.type), place) for place, column in enumerate(wanted, at)
    )
    names = ", ".join(column.name for column in wanted)
    rows = f"SELECT m.tenant_id, n.* FROM ({of}) AS m, unnest({arrays}) AS n"  # noqa: S608
    return f"INSERT INTO {table.name} (tenant_id, {names}) {rows}"  # of constants


def _array(table: Table, kind: str, place: int) -> str:
    if table in _PER_RECORD and kind == "TEXT":
        return f"string_to_array(${place}::text, E'\\x1e', E'\\x1d')"
    if table in _PER_RECORD and kind == "BIGINT":
        return f"string_to_array(${place}::text, ' ')::bigint[]"
    return f"${place}::{_TYPES[kind]}"


@cache
def _kinds(table: Table) -> list[str]:
    return [str(column.type) for column in table.c if column.name != "tenant_id"]


_PER_RECORD = (log_entries, openings)
# What follows the rows of each table. A count is added to what there is.
_FILLED: dict[Table, str] = {
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
}
STATEMENT = _statement()
"""All of it, or nothing: a transaction of its own where it is sent alone."""
