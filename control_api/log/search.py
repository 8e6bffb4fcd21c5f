"""Which events match, without reading the log: by the index where it reaches, and by the entries
themselves for the few thousand after it (`control_api.store.log.index`).

Knows rows and their order; renders nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log.index import FACETS, SPAN, indexed_size
from control_api.store.queries.purges import first_kept
from control_api.store.schema.tables import log_entries, log_heads, log_index, log_spans, openings


@dataclass(frozen=True, slots=True)
class EventFilters:
    """What an event must match; None matches all. `since` and `until` are microseconds since 1970
    UTC of the event's time: from `since` on, before `until`."""

    agent_role: str | None = None
    decision: str | None = None
    source_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    policy_name: str | None = None
    since: int | None = None
    until: int | None = None


# The one that the fewest entries share is the one to go by.
_NARROWEST = (
    "session_id",
    "user_id",
    "agent_id",
    "source_id",
    "policy_name",
    "agent_role",
    "decision",
)


class SearchRange(NamedTuple):
    """Entries from `first` to before `until`; by the index over `facet`, or each of them."""

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
    """Up to `limit` rows `(seq, entry, hash, openings)`: newest first, those before seq `before`;
    or, where `after` is given, in order and after it."""
    segments = await _segments(connection, tenant_id, filters, before)
    ascending = after is not None
    rows: list[Row[Any]] = []
    for segment in reversed(segments) if ascending else segments:
        query = _query(tenant_id, filters, segment)
        if after is not None:
            query = query.where(log_entries.c.seq > after)
        order = log_entries.c.seq if segment.facet is None else log_index.c.seq
        query = query.order_by(order if ascending else order.desc())
        rows += await connection.execute(query.limit(limit - len(rows)))
        if len(rows) == limit:
            break
    return rows


async def _segments(
    connection: AsyncConnection, tenant_id: str, filters: EventFilters, before: int | None
) -> list[SearchRange]:
    """Newest first. The size is read first: what the index holds of it is there for good, but for
    what retention removed, which nobody sees from the moment that its anchor is there."""
    head = select(log_heads.c.size, first_kept(tenant_id)).where(log_heads.c.tenant_id == tenant_id)
    size, kept = (await connection.execute(head)).one_or_none() or (0, 0)
    until = size if before is None else min(before, size)
    facet = next((name for name in _NARROWEST if getattr(filters, name) is not None), None)
    indexed = 0 if facet is None else indexed_size(FACETS.index(facet), size)
    ranges = [(0, until)]
    if filters.since is not None or filters.until is not None:
        ranges = await _spans(connection, tenant_id, filters, size, until)
    segments = []
    for low, high in ranges:
        segments.append(SearchRange(max(low, indexed, kept), high, None))
        segments.append(SearchRange(max(low, kept), min(high, indexed), facet))
    return [segment for segment in segments if segment.first < segment.until]


async def _spans(
    connection: AsyncConnection, tenant_id: str, filters: EventFilters, size: int, until: int
) -> list[tuple[int, int]]:
    """Where entries of the time asked for can lie. Times don't grow with `seq`: a sidecar that was
    cut off delivers late."""
    query = select(func.min(log_spans.c.seq), func.max(log_spans.c.until_seq)).where(
        log_spans.c.tenant_id == tenant_id
    )
    if filters.since is not None:
        query = query.where(log_spans.c.last_ts >= filters.since)
    if filters.until is not None:
        query = query.where(log_spans.c.first_ts < filters.until)
    low, high = (await connection.execute(query)).one()
    spanned = indexed_size(SPAN, size)
    older = [] if low is None else [(low, min(high, spanned, until))]
    return [(spanned, until), *older]


def events_of(tenant_id: str) -> Select[Any]:
    """Every event of the tenant, with its openings."""
    opened = (openings.c.tenant_id == log_entries.c.tenant_id) & (
        openings.c.seq == log_entries.c.seq
    )
    return (
        select(log_entries.c.seq, log_entries.c.entry, log_entries.c.hash, openings.c.openings)
        .outerjoin(openings, opened)
        .where(log_entries.c.tenant_id == tenant_id, log_entries.c.kind == "decision")
    )


def _query(tenant_id: str, filters: EventFilters, segment: SearchRange) -> Select[Any]:
    query = events_of(tenant_id).where(*_matching(filters))
    if segment.facet is None:
        return query.where(log_entries.c.seq >= segment.first, log_entries.c.seq < segment.until)
    return query.where(
        log_index.c.tenant_id == tenant_id,
        log_index.c.facet == FACETS.index(segment.facet),
        log_index.c.value == getattr(filters, segment.facet),
        log_index.c.seq >= segment.first,
        log_index.c.seq < segment.until,
        log_index.c.seq == log_entries.c.seq,
    )


def _matching(filters: EventFilters) -> Iterator[ColumnElement[bool]]:
    for name in FACETS:
        value = getattr(filters, name)
        if value is not None:
            yield (openings.c.user_id if name == "user_id" else log_entries.c[name]) == value
    if filters.since is not None:
        yield log_entries.c.ts >= filters.since
    if filters.until is not None:
        yield log_entries.c.ts < filters.until
