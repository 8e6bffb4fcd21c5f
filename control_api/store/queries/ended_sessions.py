"""Sessions whose own retention has passed: the row goes, with whose it was and why it ended; the id
stays, so that it never comes back to life (contract, section 3).

Counts of what was decided in a session (`store.tally`) are of the log's events, and go with them.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, insert, or_, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.tables import ended_sessions, sessions

MAX_CLOCK_LAG = 86_400_000_000
"""Microseconds that a sidecar's clock may be behind. Until then a session that was revoked stays,
with the document that says so: a sidecar may still take it for alive."""


async def candidates(
    connection: AsyncConnection, tenant_id: str, cutoff: int, now: int, after: str, most: int
) -> list[str]:
    """Ids after `after`, in order, of sessions that ended before `cutoff`."""
    query = _due(tenant_id, cutoff, now).where(sessions.c.session_id > after)
    found = await connection.execute(query.order_by(sessions.c.session_id).limit(most))
    return [row.session_id for row in found]


async def end(
    connection: AsyncConnection, tenant_id: str, ids: Sequence[str], cutoff: int, now: int
) -> list[tuple[str, bool]]:
    """Remove those of the sessions that are still due, but for their ids; which they are, and
    whether each was revoked."""
    query = _due(tenant_id, cutoff, now).where(sessions.c.session_id.in_(ids))
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
            sessions.c.tenant_id == tenant_id,
            sessions.c.session_id.in_([row.session_id for row in rows]),
        )
    )
    return [(row.session_id, row.revoked_at is not None) for row in rows]


async def bury(connection: AsyncConnection, tenant_id: str, session_id: str, now: int) -> None:
    """A session of which nothing is known but that it was revoked; once is enough."""
    values = {
        "tenant_id": tenant_id,
        "session_id": session_id,
        "ended_at": now,
        "revoked": True,
    }
    on_sqlite = connection.dialect.name == "sqlite"
    adding = sqlite.insert(ended_sessions) if on_sqlite else postgresql.insert(ended_sessions)
    await connection.execute(adding.values(values).on_conflict_do_nothing())


def ended(
    connection: Connection, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, bool]]:
    """When each of these `(tenant_id, session_id)` ended that was removed, and whether revoked."""
    return {
        (row[0], row[1]): (row[2], row[3]) for row in connection.execute(_ENDED, {"wanted": wanted})
    }


def undo(connection: Connection, again: Sequence[tuple[str, str]]) -> None:
    """Take back the rows that a claim has just made of ids that had ended."""
    connection.execute(_UNDO, {"wanted": again})


def _due(tenant_id: str, cutoff: int, now: int) -> Any:
    return select(sessions.c.session_id, sessions.c.expires_at, sessions.c.revoked_at).where(
        sessions.c.tenant_id == tenant_id,
        or_(
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
