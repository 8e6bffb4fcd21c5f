"""Queries over the users that sessions name, for erasures. Knows nothing of legal holds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log.index import FACETS, indexed_size
from control_api.store.log.index_entries import FacetValue, find_entries
from control_api.store.queries import redactions
from control_api.store.schema.log import log_entries, openings
from control_api.store.schema.statements import chunks, of_tenant
from control_api.store.schema.tables import sessions


class NamedSession(NamedTuple):
    """A session that names its user."""

    session_id: str
    agent_id: str | None
    user_id: str


async def sessions_of(
    connection: AsyncConnection, tenant_id: str, user_id: str, limit: int
) -> list[NamedSession]:
    """Up to `limit` sessions of the user."""
    query = _SESSIONS.where(of_tenant(sessions, tenant_id), sessions.c.user_id == user_id)
    rows = await connection.execute(query.order_by(sessions.c.session_id).limit(limit))
    return [NamedSession(*row) for row in rows]


async def sessions_by_id(
    connection: AsyncConnection, tenant_id: str, session_ids: Sequence[str]
) -> list[NamedSession]:
    """Those of these sessions that still name their user."""
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
    """Whether any event of the session still has its opening."""
    indexed = indexed_size(
        FACETS.index("session_id"), await redactions.log_size(connection, tenant_id)
    )
    opened = _OPENED.where(of_tenant(log_entries, tenant_id))
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
    """Empties `user_id` of these sessions."""
    for part in chunks(session_ids):
        await connection.execute(
            update(sessions)
            .where(of_tenant(sessions, tenant_id), sessions.c.session_id.in_(part))
            .values(user_id="")
        )


_OPENED = select(log_entries.c.seq).join(
    openings,
    of_tenant(openings, log_entries.c.tenant_id) & (openings.c.seq == log_entries.c.seq),
)
_SESSIONS: Select[Any] = select(sessions.c.session_id, sessions.c.agent_id, sessions.c.user_id)
