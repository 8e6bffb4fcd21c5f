"""Whether lists would show what the log holds: the index held against the entries.

The index proves nothing and is proven by nothing; but whoever deletes from it hides an event from
every list. What is in it beyond the entries does no harm: whatever it finds is matched again.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log.index import FACETS, SPAN, block_end, block_rows, indexed_size
from control_api.store.schema.tables import log_index, log_spans

Fault = tuple[str, str]
"""Where: an event id, or a seq; and what is wrong."""

_Span = tuple[int, int, int]  # where a block ends, its earliest and its latest time


async def unindexed(
    connection: AsyncConnection, tenant_id: str, first: int, until: int, size: int
) -> Fault | None:
    """The first entry from `first` to before `until` that the index of a log of `size` lacks."""
    due = {f"until_{place}": min(until, indexed_size(place, size)) for place in range(len(FACETS))}
    wanted = {"tenant": tenant_id, "first": first, **due}
    missing = (await connection.execute(_MISSING, wanted)).first()
    if missing is None:
        return None
    return (str(missing.seq), f"seq {missing.seq}: the index of `{FACETS[missing.facet]}` lacks it")


class Spans:
    """The times of each block, from the entries that pass by: those from `first` to before `until`,
    of a log of `size`."""

    def __init__(self, first: int, until: int, size: int) -> None:
        self._first = first
        self._due = min(until, indexed_size(SPAN, size))
        self._times: dict[int, tuple[int, int]] = {}

    def feed(self, rows: Sequence[Row[Any]]) -> None:
        for row in rows:
            first = indexed_size(SPAN, row.seq)
            low, high = self._times.get(first, (row.ts, row.ts))
            self._times[first] = (min(low, row.ts), max(high, row.ts))

    async def fault(self, connection: AsyncConnection, tenant_id: str) -> Fault | None:
        query = select(log_spans).where(log_spans.c.tenant_id == tenant_id)
        rows = (await connection.execute(query)).all()
        held = {row.seq: (row.until_seq, row.first_ts, row.last_ts) for row in rows}
        for first, times in self._times.items():
            until = block_end(SPAN, first)
            if until <= self._due and not self._holds(first, (until, *times), held.get(first)):
                return (str(first), f"seq {first}: the index of times is wrong from here on")
        return None

    def _holds(self, first: int, due: _Span, held: _Span | None) -> bool:
        if held is None or first >= self._first:
            return held == due
        # Of a block that a purge cut through: the times of what is gone may still be among its own.
        try:
            return held[0] == due[0] and held[1] <= due[1] and due[2] <= held[2]
        except TypeError:  # SQLite keeps whatever is put into a column
            return False


def _lacking(place: int, name: str) -> Select[Any]:
    """Entries of the facet of which there is no row; the index is asked once for each. Not by
    `NOT EXISTS`: PostgreSQL makes a join of that, and may read the whole index for every page."""
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


_MISSING = union_all(*(_lacking(place, name) for place, name in enumerate(FACETS))).limit(1)
