"""Checks that the search index is complete, so that lists show everything the log holds.

No proof covers the index, but deleting from it would hide an event from every list. Surplus rows do
no harm, because a search compares each entry that it finds with the filters again.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Dialect, Executable, Row, Select, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log import index
from control_api.store.log.index import FACETS, SPAN, block_end, block_rows, indexed_size
from control_api.store.schema.log import log_index, log_spans
from policies.trail.findings import Finding, Reason

_Span = tuple[int, int, int]  # a block's end, its earliest and its latest time


async def find_unindexed(
    connection: AsyncConnection, tenant_id: str, first: int, until: int, size: int
) -> Finding | None:
    """The first entry from `first` up to `until` (exclusive) that the index of a log of `size`
    should hold but does not."""
    due = {f"until_{place}": min(until, indexed_size(place, size)) for place in range(len(FACETS))}
    wanted = {"tenant": tenant_id, "first": first, "step": index.STEP, **due}
    missing = (await connection.execute(_missing(connection.dialect), wanted)).first()
    if missing is None:
        return None
    name = FACETS[missing.facet]
    missed = f"seq {missing.seq}: missing from the index of `{name}`"
    return Finding(missing.seq, Reason.INDEX_INCOMPLETE, missed)


class SpanCheck:
    """Collects the times of each block from the entries from `first` up to `until` (exclusive) of a
    log of `size`, and compares them with the stored spans."""

    def __init__(self, first: int, until: int, size: int) -> None:
        self._first = first
        self._due = min(until, indexed_size(SPAN, size))
        self._times: dict[int, tuple[int, int]] = {}

    def feed(self, rows: Sequence[Row[Any]]) -> None:
        for row in rows:
            first = indexed_size(SPAN, row.seq)  # where the entry's block begins
            low, high = self._times.get(first, (row.ts, row.ts))
            self._times[first] = (min(low, row.ts), max(high, row.ts))

    async def fault(self, connection: AsyncConnection, tenant_id: str) -> Finding | None:
        query = select(log_spans).where(log_spans.c.tenant_id == tenant_id)
        rows = (await connection.execute(query)).all()
        stored = {row.seq: (row.until_seq, row.first_ts, row.last_ts) for row in rows}
        for first, times in self._times.items():
            until = block_end(SPAN, first)
            fits = span_fits((until, *times), stored.get(first), divided=first < self._first)
            if until <= self._due and not fits:
                wrong = f"seq {first}: the index of times is wrong from here on"
                return Finding(first, Reason.INDEX_INCOMPLETE, wrong)
        return None


def span_fits(expected: _Span, stored: _Span | None, *, divided: bool) -> bool:
    """Whether the stored span of a block is right. A purge may have divided the block."""
    if stored is None or not divided:
        return stored == expected
    # The span of a divided block may still include the times of removed entries.
    try:
        return stored[0] == expected[0] and stored[1] <= expected[1] and expected[2] <= stored[2]
    except TypeError:  # SQLite does not enforce column types
        return False


def _missing(dialect: Dialect) -> Executable:
    """The first entries, facet by facet, that have no row."""
    if dialect.name == "postgresql":
        return _MISSING_FROM_ARRAYS
    return _MISSING


def _unindexed(place: int, name: str) -> Select[Any]:
    """The entries without an index row of this facet."""
    entry = block_rows(name, until=f"until_{place}").subquery()
    row = (
        select(log_index.c.seq)
        .where(
            log_index.c.tenant_id == entry.c.tenant_id,
            log_index.c.facet == place,
            log_index.c.value == entry.c.value,
            log_index.c.seq == entry.c.seq,
        )
        .limit(1)
        .scalar_subquery()
    )
    return select(entry.c.facet, entry.c.seq).where(row.is_(None))


def _unindexed_in_arrays(place: int, name: str) -> str:
    """The same on PostgreSQL, where a row may name several entries."""
    table = "openings" if name == "user_id" else "log_entries"
    # OFFSET 0: a look-up for each value. PostgreSQL would turn it into a join otherwise, which may
    # read the whole index for every page.
    return (
        f"(WITH entry AS (SELECT {name} AS value, seq FROM {table}"  # noqa: S608  # constants only
        f" WHERE tenant_id = :tenant AND seq >= :first AND seq < :until_{place}"
        f" AND {name} IS NOT NULL),"
        " indexed AS (SELECT each.value, named.seq + distance AS seq"
        " FROM (SELECT DISTINCT value FROM entry) AS each,"
        f" LATERAL (SELECT seq, more FROM log_index WHERE tenant_id = :tenant AND facet = {place}"
        " AND value = each.value AND seq > CAST(:first AS bigint) - :step"
        f" AND seq < :until_{place} OFFSET 0) AS named,"
        " LATERAL unnest(array_prepend(0::smallint, named.more)) AS distance)"
        f" SELECT {place} AS facet, missing.seq FROM"
        " (SELECT value, seq FROM entry EXCEPT SELECT value, seq FROM indexed) AS missing LIMIT 1)"
    )


_MISSING = union_all(*(_unindexed(place, name) for place, name in enumerate(FACETS))).limit(1)
_MISSING_FROM_ARRAYS = text(
    " UNION ALL ".join(_unindexed_in_arrays(place, name) for place, name in enumerate(FACETS))
)
