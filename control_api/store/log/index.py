"""Writes the search index over log entries, late and in bulk; finds the entries that the index's
rows name, and removes some.

An ordinary index writes a page for nearly every value of every entry; seven such indexes cost four
times as much as the entries themselves. This index is written for a whole block of entries at a
time, sorted, so that one page write serves many entries. A facet is a column of the entries that
can be searched.

INVARIANT: in a log of `size` entries, the index of facet `place` holds exactly the entries below
`indexed_size(place, size)`. This depends on the size alone, because the index grows in the
transaction that changes the size. A reader scans the last few thousand entries and uses the index
for the rest.

The facets' blocks end at different sizes, so that no transaction has to write all of them.

On SQLite a row names one entry. On PostgreSQL a row of a new database names up to `STEP` entries
with the same value: the first one, and the distances of the others. That costs a quarter of a row
for each entry. So a range of entries may begin within a row, and removing entries may leave a row
with those that stay. Versions before 0.2 can't read such rows, so an upgraded database gets them
once its mark excludes those versions (`control_api.store.schema.version`); rows of both forms are
read the same way.
"""

from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Select,
    Subquery,
    TextClause,
    bindparam,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import log_entries, log_index, log_spans, openings
from control_api.store.schema.statements import in_span, of_tenant

BLOCK = 4096
FACETS = ("agent_role", "agent_id", "source_id", "decision", "policy_name", "session_id", "user_id")
"""The facets: the columns of entries and openings that the index covers.

INVARIANT: the table stores a facet's place in this tuple. Only append: never move or remove one.
"""
SPAN = len(FACETS)
"""The place of the time spans among the facets: `log_spans` is written as if it were one more
facet."""
STEP = BLOCK // (SPAN + 1)
"""All entries that one index row names lie within a range of this many entries. INVARIANT: never
less than before."""
ARRAYS_SINCE = "readable since 0019"
"""The schema's mark from which on index rows may name several entries: all versions that may use
such a database can read them."""


def indexed_size(place: int, size: int) -> int:
    """Return the number of entries, from the first on, that the index of the facet at `place` holds
    in a log of `size`."""
    # Each facet's blocks end `STEP` entries after those of the facet before it.
    beyond = size - place * STEP
    return 0 if beyond < 0 else size - beyond % BLOCK


def block_end(place: int, first: int) -> int:
    """Return the end (exclusive) of the block that begins at `first`."""
    return indexed_size(place, first + BLOCK)


def due(old_size: int, new_size: int) -> bool:
    return any(indexed_size(at, old_size) < indexed_size(at, new_size) for at in range(SPAN + 1))


def extend(connection: Connection, tenant_id: str, old_size: int, new_size: int) -> None:
    """Write the blocks that the log's growth completed, in the transaction that appends. One large
    batch may complete several."""
    for place in range(SPAN + 1):
        first, until = indexed_size(place, old_size), indexed_size(place, new_size)
        while first < until:
            # A row of `log_spans` covers one block, so the facets are written block by block too.
            end = block_end(place, first)
            block = {"tenant": tenant_id, "first": first, "until": end}
            if place == SPAN:
                connection.execute(_INSERT_SPAN, block)
            else:
                _insert_facet(connection, place, block)
            first = end


def rewrite(connection: Connection, tenant_id: str, first: int, size: int) -> None:
    """Write the index rows for the `STEP` entries from `first` on (a multiple of `STEP`) anew, as
    far as the index of a log of `size` reaches. Rows for values that none of these entries has
    stay: they show no wrong entry."""
    for place in range(SPAN):
        until = min(first + STEP, indexed_size(place, size))
        if first < until:
            group = {"tenant": tenant_id, "first": first, "until": until}
            connection.execute(_DELETE_GROUP[place], group)
            _insert_facet(connection, place, group)


def rewrite_span(connection: Connection, tenant_id: str, first: int) -> None:
    """Write the times of the complete block that begins at `first` anew."""
    block = {"tenant": tenant_id, "first": first, "until": block_end(SPAN, first)}
    connection.execute(_DELETE_SPAN, block)
    connection.execute(_INSERT_SPAN, block)


def _insert_facet(connection: Connection, place: int, part: dict[str, Any]) -> None:
    # Rows that name several entries need versions that read them. Looked up each time: the mark may
    # change while this process runs, but it never goes back.
    arrays = connection.dialect.name == "postgresql"
    if arrays and connection.execute(_FINISHED, {"since": ARRAYS_SINCE}).scalar():
        connection.execute(_INSERT_ARRAYS[place], {**part, "step": STEP})
    else:
        connection.execute(_INSERT_FACET[place], part)


def block_rows(name: str, until: str = "until") -> Select[Any]:
    """Return a query for the index rows of facet `name` for the entries from `:first` up to the
    parameter named by `until` (exclusive)."""
    column = _column_of(name)
    return select(
        column.table.c.tenant_id,
        literal(FACETS.index(name)).label("facet"),
        column.label("value"),
        column.table.c.seq,
    ).where(
        of_tenant(column.table, bindparam("tenant")),
        column.table.c.seq >= bindparam("first"),
        column.table.c.seq < bindparam(until),
        column.is_not(None),
    )


def _column_of(name: str) -> Column[str]:
    return openings.c.user_id if name == "user_id" else log_entries.c[name]


ROW_OF_SEQS = (
    "seqs[1], CASE WHEN cardinality(seqs) > 1 THEN"
    " (SELECT array_agg((seq - seqs[1])::smallint) FROM unnest(seqs[2:]) AS seq) END"
)
"""The SQL for the columns `seq` and `more` of an index row on PostgreSQL that names the entries of
the array `seqs`."""


def _insertion_of_arrays(name: str) -> TextClause:
    place, table = FACETS.index(name), "openings" if name == "user_id" else "log_entries"
    return text(
        "INSERT INTO log_index (tenant_id, facet, value, seq, more)"  # noqa: S608  # constants only
        f" SELECT :tenant, {place}, value, {ROW_OF_SEQS}"
        f" FROM (SELECT {name} AS value, array_agg(seq ORDER BY seq) AS seqs FROM {table}"
        f" WHERE tenant_id = :tenant AND seq >= :first AND seq < :until AND {name} IS NOT NULL"
        f" GROUP BY {name}, seq / :step) AS block"
    )


_FINISHED = text("SELECT obj_description('alembic_version'::regclass, 'pg_class') >= :since")
_INSERT_ARRAYS = [_insertion_of_arrays(name) for name in FACETS]
_COLUMNS = ["tenant_id", "facet", "value", "seq"]
_INSERT_FACET = [
    insert(log_index).from_select(_COLUMNS, block_rows(name).order_by("value", "seq"))
    for name in FACETS
]
_DELETE_GROUP = [
    delete(log_index).where(
        of_tenant(log_index),
        log_index.c.facet == place,
        log_index.c.value.in_(block_rows(name).with_only_columns(_column_of(name))),
        log_index.c.seq >= bindparam("first"),
        log_index.c.seq < bindparam("until"),
    )
    for place, name in enumerate(FACETS)
]
_DELETE_SPAN = delete(log_spans).where(of_tenant(log_spans), log_spans.c.seq == bindparam("first"))
_INSERT_SPAN = insert(log_spans).from_select(
    ["tenant_id", "seq", "until_seq", "first_ts", "last_ts"],
    select(
        log_entries.c.tenant_id,
        bindparam("first"),
        bindparam("until"),
        func.min(log_entries.c.ts),
        func.max(log_entries.c.ts),
    )
    .where(*in_span(log_entries))
    .group_by(log_entries.c.tenant_id),
)


class FacetValue(NamedTuple):
    tenant_id: str
    facet: str
    value: str | None


def find_entries(
    dialect: Dialect, named: FacetValue, part: range, wanted: Select[Any], *, ascending: bool = True
) -> Select[Any]:
    """Return `wanted`, a query over `log_entries`, restricted to the entries within `part` that the
    index names, in order. With a limit, the query reads hardly more entries than the limit."""
    if dialect.name == "sqlite":
        query = wanted.where(*_rows(named, part.start, part.stop))
        query = query.where(log_index.c.seq == log_entries.c.seq)
        return query.order_by(_ordered(log_index.c.seq, ascending))
    indexed = _indexed(named, part, ascending)
    # Looked up one by one: what the planner knows of arrays does not suffice to choose a join.
    entry = wanted.where(log_entries.c.seq == indexed.c.seq).offset(_FENCE).lateral("entry")
    query = select(*entry.c).select_from(indexed.join(entry, true()))
    return _within(query, indexed, part, ascending)


def first_entry(dialect: Dialect, named: FacetValue, part: range) -> Select[Any]:
    if dialect.name == "sqlite":
        return select(func.min(log_index.c.seq)).where(*_rows(named, part.start, part.stop))
    indexed = _indexed(named, part, True)
    return _within(select(indexed.c.seq), indexed, part, True).limit(1)


def _indexed(named: FacetValue, part: range, ascending: bool) -> Subquery:
    """Return a PostgreSQL subquery for the entries `seq` of the index rows `row` that may name
    entries within `part`, in the order of the rows."""
    row = log_index.c.seq
    # The first of them may begin before the part.
    query = select(row.label("row"), (row + func.unnest(_DISTANCES)).label("seq"))
    query = query.where(*_rows(named, part.start - STEP + 1, part.stop))
    return query.order_by(_ordered(row, ascending)).offset(_FENCE).subquery("indexed")


def _within(query: Select[Any], indexed: Subquery, part: range, ascending: bool) -> Select[Any]:
    row, seq = indexed.c.row, indexed.c.seq
    query = query.where(seq >= part.start, seq < part.stop)
    # Rows don't overlap, so PostgreSQL sorts the entries of one row at a time.
    return query.order_by(_ordered(row, ascending), _ordered(seq, ascending))


def _rows(named: FacetValue, first: int, until: int) -> tuple[ColumnElement[bool], ...]:
    at = log_index.c
    return (
        of_tenant(log_index, named.tenant_id),
        at.facet == FACETS.index(named.facet),
        at.value == named.value,
        at.seq >= first,
        at.seq < until,
    )


def _ordered(column: ColumnElement[int], ascending: bool) -> ColumnElement[int]:
    return column if ascending else column.desc()


def removal_of_range(dialect: Dialect) -> str:
    """Return a statement that removes the entries of one value between two seqs (inclusive) from
    the index. It takes tenant, facet, value and both seqs. On PostgreSQL, hold the lock of the
    log's head."""
    if dialect.name == "sqlite":
        return (
            "DELETE FROM log_index WHERE tenant_id = ? AND facet = ? AND value = ?"
            " AND seq >= ? AND seq <= ?"
        )
    return _without("gone.seq + distance BETWEEN $4 AND $5", "true")


async def remove_entries(
    connection: AsyncConnection, tenant_id: str, facet: str, value: str, seqs: list[int]
) -> None:
    """Remove entries of one value from the index. On PostgreSQL, hold the lock of the log's
    head."""
    place = FACETS.index(facet)
    if connection.dialect.name == "sqlite":
        which = {"tenant": tenant_id, "facet": place, "value": value, "seqs": seqs}
        await connection.execute(_DELETE, which)
        return
    removal = _without(
        "gone.seq + distance = ANY($6::bigint[])", "(more IS NOT NULL OR seq = ANY($6::bigint[]))"
    )
    named = (tenant_id, place, value, min(seqs), max(seqs), seqs)
    await connection.exec_driver_sql(removal, named)


def _without(removed: str, concerned: str) -> str:
    """Return a PostgreSQL statement that removes entries from the index rows between two seqs, and
    keeps the other entries of these rows."""
    return (
        "WITH gone AS (DELETE FROM log_index"  # noqa: S608  # constants only
        " WHERE tenant_id = $1 AND facet = $2 AND value = $3"
        f" AND seq > $4::bigint - {STEP} AND seq <= $5::bigint AND {concerned}"
        " RETURNING seq, more), kept AS (SELECT array_agg(gone.seq + distance ORDER BY distance)"
        " AS seqs FROM gone, unnest(array_prepend(0::smallint, gone.more)) AS distance"
        f" WHERE NOT ({removed}) GROUP BY gone.seq)"
        " INSERT INTO log_index (tenant_id, facet, value, seq, more)"
        f" SELECT $1, $2, $3, {ROW_OF_SEQS} FROM kept"
    )


_DISTANCES = func.array_prepend(literal_column("0::smallint"), log_index.c.more)
_FENCE: ColumnElement[int] = literal_column("0")
"""The value for `OFFSET`. An `OFFSET 0` keeps PostgreSQL from merging a subquery into its
surroundings."""
_DELETE = delete(log_index).where(
    of_tenant(log_index),
    log_index.c.facet == bindparam("facet"),
    log_index.c.value == bindparam("value"),
    log_index.c.seq.in_(bindparam("seqs", expanding=True)),
)
