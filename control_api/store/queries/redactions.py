"""Queries the openings to erase, the `redact` entries that record erasures, and the users that
sessions name.

Together with an opening, the index rows derived from it are erased: those of the facet `user_id` of
`log_index`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log.index import (
    FACETS,
    FacetValue,
    find_entries,
    indexed_size,
    remove_entries,
)
from control_api.store.queries.purges import first_kept, lock
from control_api.store.schema.log import entries_with_openings, log_entries, log_heads, openings
from control_api.store.schema.statements import chunks, of_tenant
from control_api.store.schema.tables import sessions

USER = FACETS.index("user_id")


class ErasureTarget(NamedTuple):
    """The entries whose openings are to be erased: those of these ids if `facet` is None, or those
    whose `facet` (`user_id` or `session_id`) has the value."""

    facet: str | None
    value: str
    event_ids: tuple[str, ...] = ()


class ErasableEntry(NamedTuple):
    """An entry that an erasure concerns. `opened` is True if it still has an opening. A lineage
    entry that was named by its own id has the session, agent and user of its event."""

    seq: int
    eid: str
    kind: str
    session_id: str | None
    agent_id: str | None
    user_id: str | None
    opened: bool


async def log_size(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(log_heads.c.size).where(of_tenant(log_heads, tenant_id))
    return (await connection.execute(query)).scalar_one_or_none() or 0


async def entries_of(
    connection: AsyncConnection, tenant_id: str, target: ErasureTarget, part: range, limit: int
) -> list[ErasableEntry]:
    """Return up to `limit` of the target's entries within `part`, in order of `seq`."""
    if target.facet is None:
        found: list[Row[Any]] = []
        for ids in chunks(target.event_ids):
            query = _ENTRIES.where(
                of_tenant(log_entries, tenant_id),
                log_entries.c.eid.in_(ids),
                log_entries.c.seq >= first_kept(tenant_id),
            )
            found += await connection.execute(query)
        rows = sorted(row for row in found if row.seq in part)[:limit]
        events = await _events_of_lineage(connection, tenant_id, rows)
        return [_entry(row, events.get(row.ref, row)) for row in rows]
    # The index holds exactly the entries below this size; those after it are scanned.
    indexed = indexed_size(FACETS.index(target.facet), await log_size(connection, tenant_id))
    before = range(part.start, min(part.stop, indexed))
    named = FacetValue(tenant_id, target.facet, target.value)
    entries = _ENTRIES.where(of_tenant(log_entries, tenant_id))
    query = find_entries(connection.dialect, named, before, entries)
    rows = list(await connection.execute(query.limit(limit)))
    if len(rows) < limit:
        column = openings.c.user_id if target.facet == "user_id" else log_entries.c[target.facet]
        tail = _ENTRIES.where(
            of_tenant(log_entries, tenant_id),
            log_entries.c.seq >= max(part.start, indexed),
            log_entries.c.seq < part.stop,
            column == target.value,
        )
        query = tail.order_by(log_entries.c.seq).limit(limit - len(rows))
        rows += await connection.execute(query)
    return [_entry(row, row) for row in rows]


async def lineage_of(
    connection: AsyncConnection, tenant_id: str, event_ids: Sequence[str], limit: int
) -> list[int]:
    """Return the `seq`s of up to `limit` lineage entries of these events that still have an
    opening, in order."""
    query = (
        select(log_entries.c.seq)
        .select_from(_OPENED)
        .where(
            of_tenant(log_entries, tenant_id),
            log_entries.c.ref.in_(event_ids),
            log_entries.c.seq >= first_kept(tenant_id),
        )
        .order_by(log_entries.c.seq)
        .limit(limit)
    )
    return [row.seq for row in await connection.execute(query)] if event_ids else []


async def erase(connection: AsyncConnection, tenant_id: str, seqs: Sequence[int]) -> list[int]:
    """Delete the openings of these entries, and the index rows derived from them. Returns the
    entries that had openings, in order: another replica may have erased some already."""
    erased: list[int] = []
    # Rows of the index are written, divided and removed under this lock only.
    await connection.run_sync(lock, tenant_id)
    for part in chunks(seqs):
        which = {"tenant": tenant_id, "seqs": part}
        rows = (await connection.execute(_DELETE, which)).all()
        of_user: dict[str, list[int]] = {}
        for row in rows:
            if row.user_id is not None:
                of_user.setdefault(row.user_id, []).append(row.seq)
        for user_id, indexed in of_user.items():
            await remove_entries(connection, tenant_id, "user_id", user_id, indexed)
        erased += [row.seq for row in rows]
    return sorted(erased)


async def page(
    connection: AsyncConnection,
    tenant_id: str,
    *,
    before: int | None,
    after: int | None,
    limit: int,
) -> list[Row[Any]]:
    """Return `redact` entries `(seq, entry, hash)`: newest first and before seq `before`, or, if
    `after` is given, oldest first and after that seq."""
    query = _REDACTIONS.where(
        of_tenant(log_entries, tenant_id), log_entries.c.seq >= first_kept(tenant_id)
    )
    if after is not None:
        query = query.where(log_entries.c.seq > after).order_by(log_entries.c.seq)
    else:
        query = query.order_by(log_entries.c.seq.desc())
    if before is not None:
        query = query.where(log_entries.c.seq < before)
    return list(await connection.execute(query.limit(limit)))


async def _events_of_lineage(
    connection: AsyncConnection, tenant_id: str, rows: Sequence[Row[Any]]
) -> dict[str, Row[Any]]:
    """Return the events that the lineage entries among these rows belong to, by id."""
    found: dict[str, Row[Any]] = {}
    for ids in chunks(sorted({row.ref for row in rows if row.kind == "lineage"})):
        query = _ENTRIES.where(of_tenant(log_entries, tenant_id), log_entries.c.eid.in_(ids))
        found |= {row.eid: row for row in await connection.execute(query)}
    return found


def _entry(row: Row[Any], event: Row[Any]) -> ErasableEntry:
    """Return the entry of `row`, with the session, agent and user of `event`."""
    return ErasableEntry(
        row.seq, row.eid, row.kind, event.session_id, event.agent_id, event.user_id, row.opened
    )


_OPENED = log_entries.join(
    openings, of_tenant(openings, log_entries.c.tenant_id) & (openings.c.seq == log_entries.c.seq)
)
_ENTRIES: Select[Any] = select(
    *log_entries.c["seq", "eid", "kind", "ref", "session_id", "agent_id"],
    openings.c.user_id,
    openings.c.seq.is_not(None).label("opened"),
).select_from(entries_with_openings)
_OF_TENANT: ColumnElement[bool] = of_tenant(openings)
_NAMED: ColumnElement[bool] = openings.c.seq.in_(bindparam("seqs", expanding=True))
_DELETE = delete(openings).where(_OF_TENANT, _NAMED).returning(openings.c.seq, openings.c.user_id)
# In the words of the index of rare kinds, without parameters: otherwise SQLite does not use it.
_REDACTIONS: Select[Any] = select(log_entries.c.seq, log_entries.c.entry, log_entries.c.hash).where(
    text("kind = 'redact' AND kind NOT IN ('decision', 'lineage')")
)


class NamedSession(NamedTuple):
    session_id: str
    agent_id: str | None
    user_id: str


async def sessions_of(
    connection: AsyncConnection, tenant_id: str, user_id: str, limit: int
) -> list[NamedSession]:
    query = _SESSIONS.where(of_tenant(sessions, tenant_id), sessions.c.user_id == user_id)
    rows = await connection.execute(query.order_by(sessions.c.session_id).limit(limit))
    return [NamedSession(*row) for row in rows]


async def sessions_by_id(
    connection: AsyncConnection, tenant_id: str, session_ids: Sequence[str]
) -> list[NamedSession]:
    """Return those of these sessions that still name their user."""
    found: list[NamedSession] = []
    for part in chunks(session_ids):
        query = _SESSIONS.where(
            of_tenant(sessions, tenant_id),
            sessions.c.session_id.in_(part),
            sessions.c.user_id != "",
        )
        found += [NamedSession(*row) for row in await connection.execute(query)]
    return found


async def has_opening(connection: AsyncConnection, tenant_id: str, session_id: str) -> bool:
    indexed = indexed_size(FACETS.index("session_id"), await log_size(connection, tenant_id))
    opened = _OPENED_SEQS.where(of_tenant(log_entries, tenant_id))
    named = FacetValue(tenant_id, "session_id", session_id)
    by_index = find_entries(connection.dialect, named, range(indexed), opened)
    scanned = opened.where(log_entries.c.seq >= indexed, log_entries.c.session_id == session_id)
    for query in (by_index, scanned):
        if (await connection.execute(query.limit(1))).first() is not None:
            return True
    return False


async def forget_user(
    connection: AsyncConnection, tenant_id: str, session_ids: Sequence[str]
) -> None:
    for part in chunks(session_ids):
        await connection.execute(
            update(sessions)
            .where(of_tenant(sessions, tenant_id), sessions.c.session_id.in_(part))
            .values(user_id="")
        )


_OPENED_SEQS = select(log_entries.c.seq).select_from(_OPENED)
_SESSIONS: Select[Any] = select(sessions.c.session_id, sessions.c.agent_id, sessions.c.user_id)
