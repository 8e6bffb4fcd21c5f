"""Purges sessions whose retention period has passed. The row is deleted, with the session's owner
and the reason why it ended. The id stays, so that it can never be claimed again (`CONTRACT.md`,
Sessions).

The counts of a session's decisions belong to the log's events, and are deleted with them.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, insert, not_, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.dimensions import DAY
from control_api.store.queries import holds
from control_api.store.schema.statements import insert_if_absent, of_tenant
from control_api.store.schema.tables import ended_sessions, sessions

MAX_CLOCK_LAG = DAY
"""How far a sidecar's clock may be behind, in microseconds. A revoked session keeps its row and its
revocation document for that long after it expires, because such a sidecar may still consider it
active."""


async def candidates(
    connection: AsyncConnection, tenant_id: str, cutoff: int, now: int, after: str, limit: int
) -> list[str]:
    """The ids, in order and after `after`, of sessions to purge because they ended before `cutoff`.
    A revoked session must also have expired more than `MAX_CLOCK_LAG` ago. Some may be held."""
    query = _due(tenant_id, cutoff, now).where(sessions.c.session_id > after)
    found = await connection.execute(query.order_by(sessions.c.session_id).limit(limit))
    return [row.session_id for row in found]


async def end(
    connection: AsyncConnection, tenant_id: str, ids: Sequence[str], cutoff: int, now: int
) -> list[tuple[str, bool]]:
    """Purges those of the sessions that are still due and not held, but keeps their ids. Returns
    each id with whether the session was revoked. Call it under the tenant's lock."""
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
    """Adds a session of which nothing is known except that it was revoked. Does nothing if it is
    there already."""
    values = {"tenant_id": tenant_id, "session_id": session_id, "ended_at": now, "revoked": True}
    await connection.execute(insert_if_absent(ended_sessions, connection.dialect), values)


def ended(
    connection: Connection, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, bool]]:
    """For each purged session among these `(tenant_id, session_id)`: when it ended, and whether it
    was revoked."""
    return {
        (row[0], row[1]): (row[2], row[3]) for row in connection.execute(_ENDED, {"wanted": wanted})
    }


def undo_claims(connection: Connection, again: Sequence[tuple[str, str]]) -> None:
    """Deletes the rows that a claim has just created for ids of purged sessions."""
    connection.execute(_UNDO, {"wanted": again})


def _due(tenant_id: str, cutoff: int, now: int) -> Any:
    return select(sessions.c.session_id, sessions.c.expires_at, sessions.c.revoked_at).where(
        of_tenant(sessions, tenant_id),
        or_(
            # Every sidecar knows when a session expires, so there is no document to keep for it.
            and_(sessions.c.revoked_at.is_(None), sessions.c.expires_at < cutoff),
            and_(sessions.c.revoked_at < cutoff, sessions.c.expires_at < now - MAX_CLOCK_LAG),
        ),
    )


_ENDED = select(
    ended_sessions.c.tenant_id,
    ended_sessions.c.session_id,
    ended_sessions.c.ended_at,
    ended_sessions.c.revoked,
).where(
    tuple_(ended_sessions.c.tenant_id, ended_sessions.c.session_id).in_(
        bindparam("wanted", expanding=True)
    )
)
_UNDO = delete(sessions).where(
    tuple_(sessions.c.tenant_id, sessions.c.session_id).in_(bindparam("wanted", expanding=True))
)
