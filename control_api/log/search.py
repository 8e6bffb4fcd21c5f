"""Finds matching events without reading the whole log: uses the index as far as it reaches, and
scans the few thousand entries after it (`control_api.store.log.index`).

Knows rows and their order; renders nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Dialect, Row, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log.index import FACETS, SPAN, FacetValue, find_entries, indexed_size
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import (
    entries_with_openings,
    log_entries,
    log_heads,
    log_spans,
    openings,
)
from control_api.store.schema.statements import of_tenant


@dataclass(frozen=True, slots=True)
class EventFilters:
    """Filters of a search for events: an event must have each of these values; None matches all.
    The event's time must be at or after `since` and before `until`, in microseconds since 1970
    UTC."""

    agent_role: str | None = None
    decision: str | None = None
    source_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    policy_name: str | None = None
    since: int | None = None
    until: int | None = None


EVERY_EVENT = EventFilters()

# The search uses the index of the first of these filters that is given. They are in order of how
# few entries share a value.
MOST_SELECTIVE = (
    "session_id",
    "user_id",
    "agent_id",
    "source_id",
    "policy_name",
    "agent_role",
    "decision",
)


class SearchRange(NamedTuple):
    """A range to search: the entries from `first` up to `until` (exclusive), found by the index of
    `facet` (a column to filter by), or by a scan if `facet` is None."""

    first: int
    until: int
    facet: str | None


async def search(
    connection: AsyncConnection,
    tenant_id: str,
    filters: EventFilters,
    limit: int,
    *,
    before: int | None = None,
    after: int | None = None,
) -> list[Row[Any]]:
    """Return up to `limit` matching rows `(seq, entry, hash, openings)`: newest first and before
    seq `before`, or, if `after` is given, oldest first and after that seq."""
    ranges = await _ranges(connection, tenant_id, filters, before)
    ascending = after is not None
    rows: list[Row[Any]] = []
    for part in reversed(ranges) if ascending else ranges:
        first = part.first if after is None else max(part.first, after + 1)
        within = part._replace(first=min(first, part.until))
        query = _query(connection.dialect, tenant_id, filters, within, ascending)
        rows += await connection.execute(query.limit(limit - len(rows)))
        if len(rows) == limit:
            break
    return rows


async def _ranges(
    connection: AsyncConnection, tenant_id: str, filters: EventFilters, before: int | None
) -> list[SearchRange]:
    # The size is read first: the index rows for that size never change afterwards, except that
    # retention removes some. Readers must not see those once the purge's anchor is committed.
    """Return the ranges to search, newest first."""
    head = select(log_heads.c.size, first_kept(tenant_id)).where(of_tenant(log_heads, tenant_id))
    size, kept = (await connection.execute(head)).one_or_none() or (0, 0)
    until = size if before is None else min(before, size)
    facet = next((name for name in MOST_SELECTIVE if getattr(filters, name) is not None), None)
    indexed = 0 if facet is None else indexed_size(FACETS.index(facet), size)
    times = [(0, until)]
    if filters.since is not None or filters.until is not None:
        times = await _spans(connection, tenant_id, filters, size, until)
    ranges = []
    for low, high in times:
        ranges.append(SearchRange(max(low, indexed, kept), high, None))
        ranges.append(SearchRange(max(low, kept), min(high, indexed), facet))
    return [part for part in ranges if part.first < part.until]


async def _spans(
    connection: AsyncConnection, tenant_id: str, filters: EventFilters, size: int, until: int
) -> list[tuple[int, int]]:
    """Return the ranges that may hold entries of the requested time, newest first."""
    # Event times don't grow with `seq`, because a sidecar that was cut off delivers late. So each
    # block stores its earliest and latest time, and a binary search would not work.
    query = select(func.min(log_spans.c.seq), func.max(log_spans.c.until_seq)).where(
        of_tenant(log_spans, tenant_id)
    )
    if filters.since is not None:
        query = query.where(log_spans.c.last_ts >= filters.since)
    if filters.until is not None:
        query = query.where(log_spans.c.first_ts < filters.until)
    low, high = (await connection.execute(query)).one()
    spanned = indexed_size(SPAN, size)
    # The entries after the last complete block have no span yet: all of them are scanned.
    older = [] if low is None else [(low, min(high, spanned, until))]
    return [(spanned, until), *older]


def events_of(tenant_id: str) -> Select[Any]:
    return (
        select(log_entries.c.seq, log_entries.c.entry, log_entries.c.hash, openings.c.openings)
        .select_from(entries_with_openings)
        .where(of_tenant(log_entries, tenant_id), log_entries.c.kind == "decision")
    )


def _query(
    dialect: Dialect, tenant_id: str, filters: EventFilters, part: SearchRange, ascending: bool
) -> Select[Any]:
    # The index only proposes entries: each filter is matched again on the entry's own columns, so a
    # surplus row in the index can't show a wrong event.
    query = events_of(tenant_id).where(*matching(filters))
    if part.facet is not None:
        named = FacetValue(tenant_id, part.facet, getattr(filters, part.facet))
        within = range(part.first, part.until)
        return find_entries(dialect, named, within, query, ascending=ascending)
    seq = log_entries.c.seq
    query = query.where(seq >= part.first, seq < part.until)
    return query.order_by(seq if ascending else seq.desc())


def matching(filters: EventFilters) -> Iterator[ColumnElement[bool]]:
    """Yield the SQL conditions of the filters, on the columns of `events_of`."""
    for name in FACETS:
        value = getattr(filters, name)
        if value is not None:
            yield (openings.c.user_id if name == "user_id" else log_entries.c[name]) == value
    if filters.since is not None:
        yield log_entries.c.ts >= filters.since
    if filters.until is not None:
        yield log_entries.c.ts < filters.until
