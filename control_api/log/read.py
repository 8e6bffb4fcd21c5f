"""Reads events from the log: lists of events, a session's trail, an event's lineage. If an event is
missing, the time in its id shows whether it was never recorded or its row was deleted.

Pages follow `seq`, which only grows, so they neither skip nor repeat an event while others are
appended. Everything shown comes from the entry's bytes; columns are only used to find the entry.
"""

import asyncio
import uuid
from collections.abc import Collection
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.judging import Event
from control_api.log.search import EventFilters, events_of, search
from control_api.store import cited_documents
from control_api.store.log.index import SPAN, indexed_size
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import (
    entries_with_openings,
    log_entries,
    log_heads,
    log_spans,
    openings,
)
from control_api.store.schema.statements import chunks, of_tenant
from control_api.store.schema.tables import sessions
from control_api.store.store import Store
from policies.explain import Unexplained, explain_entry
from policies.ground.errors import NotFound, SluiceError
from policies.trail.entry import audit_event, lineage_action
from policies.trail.recompute.facts import cited_role

_SPANS = 8
_SKEW = 1_000_000  # microseconds between the time of an event and that of its id
_UUID7 = 7


class MissingEntry(SluiceError):
    """was deleted from the log, whose entries are numbered: run `sluice verify --database`"""


async def refuse_gap(connection: AsyncConnection, tenant_id: str, event_id: str) -> None:
    """Raise `MissingEntry` if the log lacks an entry of about the time at which the id of this
    event was drawn: the event may have been deleted. Does nothing for an id that holds no time."""
    drawn = _drawn_at(event_id)
    if drawn is None:
        return
    head = select(log_heads.c.size, first_kept(tenant_id)).where(of_tenant(log_heads, tenant_id))
    size, kept = (await connection.execute(head)).one_or_none() or (0, 0)
    # The newest entries have no span yet. They are some thousand at most, as those of a span are.
    spans = [(indexed_size(SPAN, size), size)]
    held = select(log_spans.c.seq, log_spans.c.until_seq).where(
        of_tenant(log_spans, tenant_id),
        log_spans.c.first_ts <= drawn + _SKEW,
        log_spans.c.last_ts >= drawn - _SKEW,
    )
    newest = held.order_by(log_spans.c.seq.desc()).limit(_SPANS)
    spans += [(row.seq, row.until_seq) for row in await connection.execute(newest)]
    for first, until in spans:
        gap = await _gap(connection, tenant_id, max(first, kept), until)
        # A purge may have removed rows since `kept` was read.
        if gap is not None and gap >= (await connection.execute(head)).one()[1]:
            raise MissingEntry(f"event `{event_id}` is not found, and entry {gap} {_WHAT}")


async def _gap(connection: AsyncConnection, tenant_id: str, first: int, until: int) -> int | None:
    """Return the first number from `first` up to `until` (exclusive) that no entry has; None if
    none is missing."""
    seq = log_entries.c.seq
    query = select(seq).where(of_tenant(log_entries, tenant_id), seq >= first, seq < until)
    found = {row.seq for row in await connection.execute(query)}
    return next((each for each in range(first, until) if each not in found), None)


def _drawn_at(event_id: str) -> int | None:
    """Return the time in a UUIDv7, in microseconds; None if the id is not a UUIDv7."""
    try:
        read = uuid.UUID(event_id)
    except ValueError:
        return None
    return (read.int >> 80) * 1000 if read.version == _UUID7 else None


_WHAT = " ".join((MissingEntry.__doc__ or "").split())


__all__ = ["EventFilters", "EventPage", "FoundEvent", "event", "events", "lineage", "session_trail"]


class FoundEvent(NamedTuple):
    """An event as the API shows it, and its leaf hash, by which lineage actions cite the event."""

    leaf_hash: bytes
    event: dict[str, Any]


class ExplainedEvent(NamedTuple):
    """An event as the API shows it, and the explanation of its decision."""

    event: dict[str, Any]
    explanation: dict[str, Any] | Unexplained


class DamagedEntry(SluiceError):
    """what is stored of it can't be read as a decision: run `sluice verify --database`"""


class EventPage(NamedTuple):
    """A page of events or lineage actions. `next` is the `seq` to continue from, None on the last
    page."""

    events: list[dict[str, Any]]
    next: int | None


async def events(
    store: Store, tenant_id: str, filters: EventFilters, limit: int, before_seq: int | None = None
) -> EventPage:
    """Return a page of the matching events with a `seq` below `before_seq` (None: all), newest
    first."""
    async with store.reading(tenant_id) as connection:
        # One row more than a page holds shows whether there is another page.
        rows = await search(connection, tenant_id, filters, limit + 1, before=before_seq)
    return _event_page(rows, limit)


async def session_trail(
    store: Store, tenant_id: str, session_id: str, limit: int, after_seq: int = -1
) -> EventPage:
    """Return a page of a session's events after `after_seq`, in order. Raises `NotFound` if the
    session was never claimed and no event names it."""
    filters = EventFilters(session_id=session_id)
    async with store.reading(tenant_id) as connection:
        rows = await search(connection, tenant_id, filters, limit + 1, after=after_seq)
        if not rows and not await _session_exists(connection, tenant_id, session_id):
            raise NotFound(f"no such session: `{session_id}`")
    return _event_page(rows, limit)


async def event(store: Store, tenant_id: str, event_id: str) -> FoundEvent:
    """Return one event. Raises `NotFound` if the tenant has no such event, and `MissingEntry` if
    the log has a gap where it would be."""
    async with store.reading(tenant_id) as connection:
        return await _find(connection, tenant_id, event_id)


async def explained_event(store: Store, tenant_id: str, event_id: str) -> ExplainedEvent:
    """Return one event with the explanation of its decision. Raises `NotFound` if the tenant has no
    such event, and `MissingEntry` if the log has a gap where it would be."""
    async with store.reading(tenant_id) as connection:
        row = await _row(connection, tenant_id, event_id)
        event = _render(row)
        entry = orjson.loads(row.entry)
        digest = cited_role(entry)
        wanted = [] if digest is None else [digest]
        bodies = await cited_documents.by_digests(connection, tenant_id, wanted)
    # The body of the role's document may have 1 MiB: compiled in a thread, beside the event loop.
    body = None if digest is None else bodies.get(digest)
    explanation = await asyncio.to_thread(explain_entry, entry, body)
    return ExplainedEvent(event, explanation)


async def lineage(
    store: Store, tenant_id: str, event_id: str, limit: int, after_seq: int = -1
) -> tuple[dict[str, Any], EventPage]:
    """Return the event, and a page of its lineage actions after `after_seq`, in order. Raises
    `NotFound` if the tenant has no such event."""
    actions = (
        select(log_entries.c.entry, openings.c.openings)
        .select_from(entries_with_openings)
        .where(
            of_tenant(log_entries, tenant_id),
            log_entries.c.ref == event_id,
            log_entries.c.kind == "lineage",
            log_entries.c.seq > after_seq,
        )
        .order_by(log_entries.c.seq)
        .limit(limit + 1)
    )
    async with store.reading(tenant_id) as connection:
        found = await _find(connection, tenant_id, event_id)
        rows = (await connection.execute(actions)).all()
    page = [lineage_action(orjson.loads(entry), opened) for entry, opened in rows[:limit]]
    return found.event, EventPage(page, page[-1]["seq"] if len(rows) > limit else None)


async def known_events(
    store: Store, tenant_id: str, event_ids: Collection[str]
) -> dict[str, Event]:
    """Return those of the events with these ids that the log holds, by id: which sidecar decided
    them, and for which agent."""
    query = select(log_entries.c.eid, log_entries.c.agent_id, log_entries.c.entry).where(
        of_tenant(log_entries, tenant_id), log_entries.c.kind == "decision"
    )
    found: dict[str, Event] = {}
    async with store.reading(tenant_id) as connection:
        for ids in chunks(sorted(event_ids)):
            rows = await connection.execute(query.where(log_entries.c.eid.in_(ids)))
            for row in rows:
                src = orjson.loads(row.entry).get("src")
                found[row.eid] = Event(None if src is None else src["id"], row.agent_id)
    return found


async def _find(connection: AsyncConnection, tenant_id: str, event_id: str) -> FoundEvent:
    row = await _row(connection, tenant_id, event_id)
    return FoundEvent(row.hash, _render(row))


async def _row(connection: AsyncConnection, tenant_id: str, event_id: str) -> Row[Any]:
    query = events_of(tenant_id).where(
        log_entries.c.eid == event_id,
        # A purge hides entries as soon as it is committed, before it removes their rows.
        log_entries.c.seq >= first_kept(tenant_id),
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        await refuse_gap(connection, tenant_id, event_id)
        raise NotFound(f"no such event: `{event_id}`")
    found: Row[Any] = row
    return found


async def _session_exists(connection: AsyncConnection, tenant_id: str, session_id: str) -> bool:
    claimed = select(sessions.c.session_id).where(
        of_tenant(sessions, tenant_id), sessions.c.session_id == session_id
    )
    if (await connection.execute(claimed)).first() is not None:
        return True
    # The events of a purged session stay in the log.
    return bool(await search(connection, tenant_id, EventFilters(session_id=session_id), 1))


def _event_page(rows: list[Row[Any]], limit: int) -> EventPage:
    page = rows[:limit]
    return EventPage([_render(row) for row in page], page[-1].seq if len(rows) > limit else None)


def _render(row: Row[Any]) -> dict[str, Any]:
    try:
        return audit_event(orjson.loads(row.entry), row.hash, row.openings)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedEntry(f"entry {row.seq}: {DamagedEntry.__doc__}") from error
