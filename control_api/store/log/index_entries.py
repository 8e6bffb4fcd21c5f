"""The entries that the rows of the search index name: finding them, and removing some.

On SQLite a row names one entry. On PostgreSQL it may name others within `STEP` after it
(`control_api.store.log.index`), so a range of entries may begin within a row, and removing entries
may leave a row with those that stay.
"""

from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Dialect,
    Select,
    Subquery,
    bindparam,
    delete,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log import index
from control_api.store.schema.log import log_entries, log_index
from control_api.store.schema.statements import of_tenant


class FacetValue(NamedTuple):
    """A value of a facet in one tenant's log."""

    tenant_id: str
    facet: str
    value: str | None


def find_entries(
    dialect: Dialect,
    named: FacetValue,
    part: range,
    wanted: Select[Any],
    *,
    ascending: bool = True,
) -> Select[Any]:
    """`wanted`, a query over `log_entries`, for the entries within `part` that the index names, in
    order. With a limit, it reads hardly more of them than the limit."""
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
    """A query for the first entry within `part` that the index names."""
    if dialect.name == "sqlite":
        return select(func.min(log_index.c.seq)).where(*_rows(named, part.start, part.stop))
    indexed = _indexed(named, part, True)
    return _within(select(indexed.c.seq), indexed, part, True).limit(1)


def _indexed(named: FacetValue, part: range, ascending: bool) -> Subquery:
    """On PostgreSQL, the entries `seq` of the rows `row` that may name entries within `part`, in
    the order of the rows."""
    row = log_index.c.seq
    # The first of them may begin before the part.
    query = select(row.label("row"), (row + func.unnest(_DISTANCES)).label("seq"))
    query = query.where(*_rows(named, part.start - index.STEP + 1, part.stop))
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
        at.facet == index.FACETS.index(named.facet),
        at.value == named.value,
        at.seq >= first,
        at.seq < until,
    )


def _ordered(column: ColumnElement[int], ascending: bool) -> ColumnElement[int]:
    return column if ascending else column.desc()


def removal_of_range(dialect: Dialect) -> str:
    """A statement that removes the entries of one value between two seqs, inclusive. It takes
    tenant, facet, value and both seqs. On PostgreSQL, hold the lock of the log's head."""
    if dialect.name == "sqlite":
        return (
            "DELETE FROM log_index WHERE tenant_id = ? AND facet = ? AND value = ?"
            " AND seq >= ? AND seq <= ?"
        )
    return _without("gone.seq + distance BETWEEN $4 AND $5", "true")


async def remove_entries(
    connection: AsyncConnection, tenant_id: str, facet: str, value: str, seqs: list[int]
) -> None:
    """Removes entries of one value. On PostgreSQL, hold the lock of the log's head."""
    place = index.FACETS.index(facet)
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
    """A statement for PostgreSQL that replaces the rows between two seqs by what is left of
    them."""
    return (
        "WITH gone AS (DELETE FROM log_index"  # noqa: S608  # constants only
        " WHERE tenant_id = $1 AND facet = $2 AND value = $3"
        f" AND seq > $4::bigint - {index.STEP} AND seq <= $5::bigint AND {concerned}"
        " RETURNING seq, more), kept AS (SELECT array_agg(gone.seq + distance ORDER BY distance)"
        " AS seqs FROM gone, unnest(array_prepend(0::smallint, gone.more)) AS distance"
        f" WHERE NOT ({removed}) GROUP BY gone.seq)"
        " INSERT INTO log_index (tenant_id, facet, value, seq, more)"
        f" SELECT $1, $2, $3, {index.ROW_OF_SEQS} FROM kept"
    )


_DISTANCES = func.array_prepend(literal_column("0::smallint"), log_index.c.more)
_FENCE: ColumnElement[int] = literal_column("0")
"""`OFFSET 0` keeps PostgreSQL from rearranging what a subquery does."""
_DELETE = delete(log_index).where(
    of_tenant(log_index, bindparam("tenant")),
    log_index.c.facet == bindparam("facet"),
    log_index.c.value == bindparam("value"),
    log_index.c.seq.in_(bindparam("seqs", expanding=True)),
)
