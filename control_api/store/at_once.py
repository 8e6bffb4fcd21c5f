"""A batch's rows on PostgreSQL in one statement: entries, openings, counts, and the head's move.

Columns go as arrays, so a batch of any size is one round trip and one plan. (COPY would take
another for each table, and is refused where row-level security holds.) Knows what `chain` and
`tally` want written, and no more of either.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table

from control_api.store.schema import first_accesses, log_entries, log_heads, openings, tallies

_TYPES = {"BIGINT": "bigint[]", "SMALLINT": "smallint[]", "TEXT": "text[]", "BLOB": "bytea[]"}
_Rows = Sequence[tuple[Any, ...]]


def write(
    connection: Connection,
    tenant_id: str,
    head: tuple[Any, ...],
    entries: _Rows,
    opened: _Rows,
    counts: _Rows,
    accesses: _Rows,
) -> bool:
    """Rows without their tenant, of all other columns in order; `head` is the size that was loaded,
    then the new size, leaf, time and frontier. False where the head was not at that size any more:
    then nothing of it may be committed."""
    columns = [tenant_id, *head]
    for table, rows in zip(_FILLED, (entries, opened, counts, accesses), strict=True):
        columns += zip(*rows, strict=True) if rows else [()] * (len(table.c) - 1)
    return connection.exec_driver_sql(_STATEMENT, tuple(columns)).rowcount == 1


def _statement() -> str:
    """`$1` the tenant, `$2` to `$6` the head, then an array a column, table after table."""
    parts, at = [], 7
    for table, then in _FILLED.items():
        wanted = [column for column in table.c if column.name != "tenant_id"]
        arrays = ", ".join(
            f"${place}::{_TYPES[str(column.type)]}" for place, column in enumerate(wanted, at)
        )
        names = ", ".join(column.name for column in wanted)
        into = f"INTO {table.name} (tenant_id, {names})"
        rows = f"SELECT $1::text, * FROM unnest({arrays})"  # noqa: S608  # of constants
        parts.append(f"{table.name}_ AS (INSERT {into} {rows} {then})")
        at += len(wanted)
    return (
        f"WITH {', '.join(parts)} UPDATE {log_heads.name}"  # noqa: S608  # of constants
        " SET size = $3, last_leaf = $4, last_ts = $5, frontier = $6"
        " WHERE tenant_id = $1 AND size = $2"
    )


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
_STATEMENT = _statement()
