"""Who owns a session, and until when. Claims that come together are one transaction.

The first claim makes the session and owns it; later ones read what it made. `expires_at`
is fixed then: an id that has expired, or was revoked, never comes back to life; not even
once its row has been purged (`ended_sessions`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.group_commit import GroupCommit
from control_api.store.queries import ended_sessions
from control_api.store.schema.tables import sessions
from control_api.store.store import Store
from policies.definitions.model import Session, SessionState
from policies.ground.errors import SluiceError

MINUTE = 60_000_000


class SessionRow(NamedTuple):
    """A session as it is kept; the columns of the table without the tenant, in their order. Times
    in microseconds since 1970 UTC."""

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
        """What a decision needs of it."""
        return Session(self.session_id, self.state(now), self.agent_role, self.agent_id)


class SessionClaimer:
    """Claims sessions, many at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gather: GroupCommit[tuple[str, SessionRow], SessionRow] = GroupCommit(
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
        """The session, made now if there was none: whether the caller owns it is for `agent_role`
        and `agent_id` of the answer to say. `WriteFault` where the database fails."""
        wanted = SessionRow(
            session_id, agent_role, agent_id, user_id, now, now + ttl_minutes * MINUTE
        )
        return await self._gather.submit(self._store.lane(tenant_id), (tenant_id, wanted))

    async def _commit(
        self, lane: str, wanted: list[tuple[str, SessionRow]]
    ) -> list[SessionRow | SluiceError]:
        return await self._store.run(lane, lambda connection, _: _claim(connection, wanted))


def _claim(
    connection: Connection, wanted: list[tuple[str, SessionRow]]
) -> list[SessionRow | SluiceError]:
    # In one order everywhere: two replicas that claim the same ids can't wait for each other.
    first: dict[tuple[str, str], SessionRow] = {}
    for tenant_id, row in wanted:
        first.setdefault((tenant_id, row.session_id), row)
    rows = [
        dict(zip(_COLUMNS, (tenant_id, *first[tenant_id, session_id]), strict=True))
        for tenant_id, session_id in sorted(first)
    ]
    connection.execute(_INSERTION[connection.dialect.name], rows)
    held = connection.execute(_HELD, {"wanted": list(first)})
    found = {(row[0], row[1]): SessionRow(*row[1:]) for row in held}
    # Last: a purge that took a row from under us has committed, and left the id here.
    gone = ended_sessions.ended(connection, list(first))
    if gone:
        ended_sessions.undo(connection, list(gone))
        found |= {key: _of_old(key[1], *how) for key, how in gone.items()}
    return [found[tenant_id, row.session_id] for tenant_id, row in wanted]


def _of_old(session_id: str, ended_at: int, revoked: bool) -> SessionRow:
    """What is known of a session that was purged: that it ended. Nobody owns it any more."""
    return SessionRow(
        session_id, "", None, "", ended_at, ended_at, ended_at if revoked else None, None
    )


async def look_up(
    connection: AsyncConnection, tenant_id: str, session_id: str
) -> SessionRow | None:
    """The same as a claim would find it: one that was purged has ended."""
    row = await find(connection, tenant_id, session_id)
    if row is not None:
        return row
    key = (tenant_id, session_id)
    gone = await connection.run_sync(ended_sessions.ended, [key])
    return _of_old(session_id, *gone[key]) if gone else None


async def find(connection: AsyncConnection, tenant_id: str, session_id: str) -> SessionRow | None:
    """The session of this id; None where nobody has claimed it."""
    wanted = {"wanted": [(tenant_id, session_id)]}
    row = (await connection.execute(_HELD, wanted)).one_or_none()
    return None if row is None else SessionRow(*row[1:])


async def page(
    connection: AsyncConnection,
    tenant_id: str,
    *,
    agent_role: str | None,
    state: SessionState | None,
    now: int,
    after: tuple[Any, ...] | None,
    limit: int,
) -> list[SessionRow]:
    """Newest first, after `(created_at, session_id)`; `state` as it is at `now`."""
    query = select(*(sessions.c[name] for name in _COLUMNS[1:])).where(
        sessions.c.tenant_id == tenant_id
    )
    if agent_role is not None:
        query = query.where(sessions.c.agent_role == agent_role)
    if state is not None:
        query = query.where(*_IN_STATE[state](now))
    if after is not None:
        query = query.where(tuple_(sessions.c.created_at, sessions.c.session_id) < after)
    query = query.order_by(sessions.c.created_at.desc(), sessions.c.session_id.desc())
    return [SessionRow(*row) for row in await connection.execute(query.limit(limit))]


async def revoke(
    connection: AsyncConnection, tenant_id: str, session_id: str, reason: str | None, now: int
) -> None:
    await connection.execute(
        update(sessions)
        .where(sessions.c.tenant_id == tenant_id, sessions.c.session_id == session_id)
        .values(revoked_at=now, revocation_reason=reason)
    )


_IN_STATE: dict[SessionState, Callable[[int], tuple[ColumnElement[bool], ...]]] = {
    "active": lambda now: (sessions.c.revoked_at.is_(None), sessions.c.expires_at > now),
    "expired": lambda now: (sessions.c.revoked_at.is_(None), sessions.c.expires_at <= now),
    "revoked": lambda _: (sessions.c.revoked_at.is_not(None),),
}
_COLUMNS = tuple(sessions.c.keys())
_INSERTION = {
    "sqlite": sqlite.insert(sessions).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(sessions).on_conflict_do_nothing(),
}
_HELD = select(*(sessions.c[name] for name in _COLUMNS)).where(
    tuple_(sessions.c.tenant_id, sessions.c.session_id).in_(bindparam("wanted", expanding=True))
)
