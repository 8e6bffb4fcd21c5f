"""Queries sessions: claims them, many in one transaction, and purges those whose retention period
has passed.

The caller of the first claim owns the session that it creates; later claims only read it. A
session's `expires_at` never changes: an expired or revoked id can't be claimed again, not even
after a purge, which deletes the row and keeps the id (`CONTRACT.md`, Sessions).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    not_,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.counters import DAY, MINUTE
from control_api.store.group_commit import GroupCommit
from control_api.store.queries import holds
from control_api.store.schema.statements import (
    Position,
    columns_of,
    insert_if_absent,
    newest_first,
    of_tenant,
)
from control_api.store.schema.tables import ended_sessions, sessions
from control_api.store.store import Store
from policies.definitions.model import Session, SessionState
from policies.ground.errors import SluiceError

MAX_CLOCK_LAG = DAY
"""The time (microseconds) by which a sidecar's clock may be behind. A revoked session keeps its row
and its revocation document for that long after it expires, because such a sidecar may still
consider it active."""


async def sessions_to_purge(
    connection: AsyncConnection, tenant_id: str, cutoff: int, now: int, after: str, limit: int
) -> list[str]:
    """Return up to `limit` ids, in order and after `after`, of sessions to purge because they ended
    before `cutoff`. A revoked session must also have expired more than `MAX_CLOCK_LAG` ago. Legal
    holds may cover some of them."""
    query = _due(tenant_id, cutoff, now).where(sessions.c.session_id > after)
    found = await connection.execute(query.order_by(sessions.c.session_id).limit(limit))
    return [row.session_id for row in found]


async def purge_ended(
    connection: AsyncConnection, tenant_id: str, ids: Sequence[str], cutoff: int, now: int
) -> list[tuple[str, bool]]:
    """Purge those of the sessions that are still due and not covered by a legal hold, but keep
    their ids. Returns each purged id with whether the session was revoked. Call it under the
    tenant's lock."""
    query = _due(tenant_id, cutoff, now).where(sessions.c.session_id.in_(ids))
    if held := await holds.active(connection, tenant_id):
        query = query.where(not_(held.sessions()))
    # Lock and read them again: one may have been revoked since it became a candidate.
    rows = (await connection.execute(query.with_for_update())).all()
    if not rows:
        return []
    values = [
        {
            "tenant_id": tenant_id,
            "session_id": row.session_id,
            "ended_at": row.expires_at if row.revoked_at is None else row.revoked_at,
            "revoked": row.revoked_at is not None,
        }
        for row in rows
    ]
    await connection.execute(insert(ended_sessions), values)
    await connection.execute(
        delete(sessions).where(
            of_tenant(sessions, tenant_id),
            sessions.c.session_id.in_([row.session_id for row in rows]),
        )
    )
    return [(row.session_id, row.revoked_at is not None) for row in rows]


async def add_revoked(
    connection: AsyncConnection, tenant_id: str, session_id: str, now: int
) -> None:
    """Add a revoked session of which nothing else is known: only its id and its end are stored.
    Does nothing if its id is stored already."""
    values = {"tenant_id": tenant_id, "session_id": session_id, "ended_at": now, "revoked": True}
    await connection.execute(insert_if_absent(ended_sessions, connection.dialect), values)


def purged_among(
    connection: Connection, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, bool]]:
    """Return for each purged session among these `(tenant_id, session_id)` when it ended, and
    whether it was revoked."""
    return {
        (row[0], row[1]): (row[2], row[3]) for row in connection.execute(_ENDED, {"wanted": wanted})
    }


def _due(tenant_id: str, cutoff: int, now: int) -> Any:
    return select(sessions.c.session_id, sessions.c.expires_at, sessions.c.revoked_at).where(
        of_tenant(sessions, tenant_id),
        or_(
            # Every sidecar knows when a session expires, so there is no document to keep for it.
            and_(sessions.c.revoked_at.is_(None), sessions.c.expires_at < cutoff),
            and_(sessions.c.revoked_at < cutoff, sessions.c.expires_at < now - MAX_CLOCK_LAG),
        ),
    )


def _wanted(table: Table) -> ColumnElement[bool]:
    pairs: ColumnElement[Any] = bindparam("wanted", expanding=True)
    return tuple_(*table.c["tenant_id", "session_id"]).in_(pairs)


_ENDED = select(*ended_sessions.c["tenant_id", "session_id", "ended_at", "revoked"]).where(
    _wanted(ended_sessions)
)
_UNDO = delete(sessions).where(_wanted(sessions))


class SessionRow(NamedTuple):
    """A session as stored: the table's columns in order, without the tenant. Times in microseconds
    since 1970 UTC."""

    session_id: str
    agent_role: str
    agent_id: str | None
    user_id: str
    created_at: int
    expires_at: int
    revoked_at: int | None = None
    revocation_reason: str | None = None

    def state(self, now: int) -> SessionState:
        if self.revoked_at is not None:
            return "revoked"
        return "active" if now < self.expires_at else "expired"

    def at(self, now: int) -> Session:
        return Session(self.session_id, self.state(now), self.agent_role, self.agent_id)


class SessionClaimer:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._group_commit: GroupCommit[tuple[str, SessionRow], SessionRow] = GroupCommit(
            store.group, self._commit
        )

    async def claim(
        self,
        tenant_id: str,
        session_id: str,
        agent_role: str,
        agent_id: str | None,
        user_id: str,
        ttl_minutes: int,
        now: int,
    ) -> SessionRow:
        """Return the session; create it if the id is new. Compare the session's `agent_role` and
        `agent_id` with the caller's to see whether the caller owns it. Raises `WriteFault` if the
        database fails."""
        wanted = SessionRow(
            session_id, agent_role, agent_id, user_id, now, now + ttl_minutes * MINUTE
        )
        return await self._group_commit.submit(self._store.lane(tenant_id), (tenant_id, wanted))

    async def _commit(
        self, lane: str, wanted: list[tuple[str, SessionRow]]
    ) -> list[SessionRow | SluiceError]:
        return await self._store.run(lane, lambda connection, _: _claim(connection, wanted))


def _claim(
    connection: Connection, wanted: list[tuple[str, SessionRow]]
) -> list[SessionRow | SluiceError]:
    # Within a batch, too, the first claim of an id owns it.
    first: dict[tuple[str, str], SessionRow] = {}
    for tenant_id, row in wanted:
        first.setdefault((tenant_id, row.session_id), row)
    # Every replica inserts in this order, so that two that claim the same ids can't deadlock.
    rows = [
        dict(zip(_COLUMNS, (tenant_id, *first[tenant_id, session_id]), strict=True))
        for tenant_id, session_id in sorted(first)
    ]
    connection.execute(insert_if_absent(sessions, connection.dialect), rows)
    stored = connection.execute(_BY_ID, {"wanted": list(first)})
    found = {(row[0], row[1]): SessionRow(*row[1:]) for row in stored}
    # Read the purged ids last: a purge that removed a row before our insert has also committed the
    # row's id to `ended_sessions`.
    purged = purged_among(connection, list(first))
    if purged:
        # These ids could be claimed only because their rows are gone: delete the new rows again.
        connection.execute(_UNDO, {"wanted": list(purged)})
        found |= {key: _purged_row(key[1], *end) for key, end in purged.items()}
    return [found[tenant_id, row.session_id] for tenant_id, row in wanted]


def _purged_row(session_id: str, ended_at: int, revoked: bool) -> SessionRow:
    """Return a row for a purged session. Only the session's end is known, so the row has no
    owner."""
    return SessionRow(
        session_id, "", None, "", ended_at, ended_at, ended_at if revoked else None, None
    )


async def look_up(
    connection: AsyncConnection, tenant_id: str, session_id: str
) -> SessionRow | None:
    """Return the session as a claim would find it, even if it is purged; None if it was never
    claimed."""
    row = await find(connection, tenant_id, session_id)
    if row is not None:
        return row
    key = (tenant_id, session_id)
    purged = await connection.run_sync(purged_among, [key])
    return _purged_row(session_id, *purged[key]) if purged else None


async def find(connection: AsyncConnection, tenant_id: str, session_id: str) -> SessionRow | None:
    """Return the session of this id; None if it was never claimed or has been purged."""
    wanted = {"wanted": [(tenant_id, session_id)]}
    row = (await connection.execute(_BY_ID, wanted)).one_or_none()
    return None if row is None else SessionRow(*row[1:])


async def page(
    connection: AsyncConnection,
    tenant_id: str,
    *,
    agent_role: str | None,
    state: SessionState | None,
    now: int,
    after: Position | None,
    limit: int,
) -> list[SessionRow]:
    """Return up to `limit` sessions after the position `(created_at, session_id)`, newest first.
    `state` is compared with the sessions' state at `now`."""
    query = select(*columns_of(sessions)).where(of_tenant(sessions, tenant_id))
    if agent_role is not None:
        query = query.where(sessions.c.agent_role == agent_role)
    if state is not None:
        query = query.where(*_IN_STATE[state](now))
    query = newest_first(query, sessions.c.created_at, sessions.c.session_id, after, limit)
    return [SessionRow(*row) for row in await connection.execute(query)]


async def revoke(
    connection: AsyncConnection, tenant_id: str, session_id: str, reason: str | None, now: int
) -> None:
    await connection.execute(
        update(sessions)
        .where(of_tenant(sessions, tenant_id), sessions.c.session_id == session_id)
        .values(revoked_at=now, revocation_reason=reason)
    )


_IN_STATE: dict[SessionState, Callable[[int], tuple[ColumnElement[bool], ...]]] = {
    "active": lambda now: (sessions.c.revoked_at.is_(None), sessions.c.expires_at > now),
    "expired": lambda now: (sessions.c.revoked_at.is_(None), sessions.c.expires_at <= now),
    "revoked": lambda _: (sessions.c.revoked_at.is_not(None),),
}
_COLUMNS = tuple(sessions.c.keys())
_BY_ID = select(sessions).where(_wanted(sessions))
