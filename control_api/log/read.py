"""Events out of the log: lists, a session's trail, and what followed from an event.

Lists go by `seq`, which only grows: a page neither skips nor repeats an event while others are
written. Whatever is shown comes from the entry's bytes; columns only find it. Knows nothing of
cursors' form nor of who may see what.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.window import in_window
from control_api.store.schema import log_entries, openings, sessions
from control_api.store.store import Store
from policies.entry import audit_event, lineage_action
from policies.ground.errors import NotFound


@dataclass(frozen=True, slots=True)
class Filters:
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


class Found(NamedTuple):
    """An event, the hash that a lineage action cites it by, and how it is shown."""

    leaf_hash: bytes
    event: dict[str, Any]


class Trail(NamedTuple):
    """A page of events; `next` is the `seq` to go on from, None where there is no more."""

    events: list[dict[str, Any]]
    next: int | None


async def events(
    store: Store, tenant_id: str, filters: Filters, limit: int, before_seq: int | None = None
) -> Trail:
    """Newest first, those before `before_seq`."""
    query = _events(tenant_id).where(*_matching(filters)).order_by(log_entries.c.seq.desc())
    if before_seq is not None:
        query = query.where(log_entries.c.seq < before_seq)
    async with store.reading() as connection:
        if filters.since is not None or filters.until is not None:
            query = query.where(in_window(tenant_id, filters.since, filters.until))
        return await _page(connection, query, limit)


async def session_trail(
    store: Store, tenant_id: str, session_id: str, limit: int, after_seq: int | None = None
) -> Trail:
    """A session's events in order, those after `after_seq`. `NotFound` where it was never seen."""
    query = (
        _events(tenant_id).where(log_entries.c.session_id == session_id).order_by(log_entries.c.seq)
    )
    if after_seq is not None:
        query = query.where(log_entries.c.seq > after_seq)
    async with store.reading() as connection:
        trail = await _page(connection, query, limit)
        if not trail.events and not await _seen(connection, tenant_id, session_id):
            raise NotFound(f"no such session: `{session_id}`")
        return trail


async def event(store: Store, tenant_id: str, event_id: str) -> Found:
    """`NotFound` where the tenant has no such event."""
    async with store.reading() as connection:
        return await _find(connection, tenant_id, event_id)


async def lineage(
    store: Store, tenant_id: str, event_id: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The event, and the lineage actions recorded on it, in order."""
    async with store.reading() as connection:
        found = await _find(connection, tenant_id, event_id)
        rows = await connection.execute(
            _entries(tenant_id)
            .where(log_entries.c.ref == event_id, log_entries.c.kind == "lineage")
            .order_by(log_entries.c.seq)
        )
        return found.event, [lineage_action(orjson.loads(row[1]), row[3]) for row in rows]


async def _find(connection: AsyncConnection, tenant_id: str, event_id: str) -> Found:
    query = _events(tenant_id).where(log_entries.c.eid == event_id)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"no such event: `{event_id}`")
    return Found(row[2], _shown(row))


async def _page(connection: AsyncConnection, query: Select[Any], limit: int) -> Trail:
    rows = (await connection.execute(query.limit(limit + 1))).all()
    page = rows[:limit]
    return Trail([_shown(row) for row in page], page[-1][0] if len(rows) > limit else None)


async def _seen(connection: AsyncConnection, tenant_id: str, session_id: str) -> bool:
    claimed = select(sessions.c.session_id).where(
        sessions.c.tenant_id == tenant_id, sessions.c.session_id == session_id
    )
    recorded = select(log_entries.c.seq).where(
        log_entries.c.tenant_id == tenant_id, log_entries.c.session_id == session_id
    )
    for query in (claimed, recorded):
        if (await connection.execute(query.limit(1))).first() is not None:
            return True
    return False


def _shown(row: Any) -> dict[str, Any]:
    return audit_event(orjson.loads(row[1]), row[2], row[3])


def _entries(tenant_id: str) -> Select[Any]:
    opened = (openings.c.tenant_id == log_entries.c.tenant_id) & (
        openings.c.seq == log_entries.c.seq
    )
    return (
        select(log_entries.c.seq, log_entries.c.entry, log_entries.c.hash, openings.c.openings)
        .select_from(log_entries.outerjoin(openings, opened))
        .where(log_entries.c.tenant_id == tenant_id)
    )


def _events(tenant_id: str) -> Select[Any]:
    return _entries(tenant_id).where(log_entries.c.kind == "decision")


def _matching(filters: Filters) -> list[ColumnElement[bool]]:
    wanted = {
        log_entries.c.agent_role: filters.agent_role,
        log_entries.c.decision: filters.decision,
        log_entries.c.source_id: filters.source_id,
        log_entries.c.agent_id: filters.agent_id,
        log_entries.c.session_id: filters.session_id,
        log_entries.c.policy_name: filters.policy_name,
        openings.c.user_id: filters.user_id,
    }
    return [column == value for column, value in wanted.items() if value is not None]
