"""The entries that the rows of the search index name: finding them, and removing some.

On SQLite a row names one entry. On PostgreSQL it may name others within `STEP` after it
(`control_api.store.log.index`), so a range of entries may begin within a row, and removing entries
may leave a row with those that stay.
"""

from sqlalchemy import (
    ColumnElement,
    Dialect,
    Subquery,
    bindparam,
    delete,
    func,
    literal_column,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log import index
from control_api.store.schema.log import log_index


def indexed_entries(
    dialect: Dialect, tenant_id: str, facet: str, value: str | None, part: range
) -> Subquery:
    """The entries within `part` that the index of the facet holds for the value, as column `seq`.
    To get them in order without reading all of them, order by `row` and then by `seq`."""
    at = log_index.c
    query = select(at.seq.label("row"))
    seq: ColumnElement[int] = at.seq
    first = part.start
    if dialect.name == "postgresql":
        distances = func.array_prepend(literal_column("0::smallint"), at.more)
        seq = at.seq + func.unnest(distances).column_valued("distance", joins_implicitly=True)
        first -= index.STEP - 1
        query = query.where(seq >= part.start, seq < part.stop)
    return (
        query.add_columns(seq.label("seq"))
        .where(
            at.tenant_id == tenant_id,
            at.facet == index.FACETS.index(facet),
            at.value == value,
            at.seq >= first,
            at.seq < part.stop,
        )
        .subquery("indexed")
    )


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


_DELETE = delete(log_index).where(
    log_index.c.tenant_id == bindparam("tenant"),
    log_index.c.facet == bindparam("facet"),
    log_index.c.value == bindparam("value"),
    log_index.c.seq.in_(bindparam("seqs", expanding=True)),
)
