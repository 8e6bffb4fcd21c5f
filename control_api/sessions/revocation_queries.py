"""Finds the sessions that match a filter, page by page, and revokes them in bulk. Knows nothing of
the documents that publish a revocation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.ended_sessions import MAX_CLOCK_LAG
from control_api.store.queries.rows import columns_of, newest_first
from control_api.store.queries.session_rows import SessionRow
from control_api.store.schema.statements import of_tenant
from control_api.store.schema.tables import sessions

SessionPosition = tuple[int, str]
"""`(created_at, session_id)` of a page's last session; the next page begins after it."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """A session must match every given field exactly, but only one of `user_ids`: a user may be
    recorded both in clear and masked."""

    agent_role: str | None = None
    agent_id: str | None = None
    user_ids: tuple[str, ...] = ()


async def revocable(
    connection: AsyncConnection,
    tenant_id: str,
    wanted: SessionFilter,
    now: int,
    after: SessionPosition | None,
    limit: int,
) -> list[SessionPosition]:
    """The matching sessions that are not revoked, newest first, from the one after `after`.

    Includes sessions that expired within the last day: a sidecar whose clock is behind may still
    consider them active.
    """
    columns = select(sessions.c.created_at, sessions.c.session_id)
    query = columns.where(*_matching(tenant_id, wanted, now))
    query = newest_first(query, sessions.c.created_at, sessions.c.session_id, after, limit)
    return [(row[0], row[1]) for row in await connection.execute(query)]


async def count(
    connection: AsyncConnection, tenant_id: str, wanted: SessionFilter, now: int
) -> int:
    """How many sessions `revocable` finds on all its pages."""
    query = select(func.count()).select_from(sessions).where(*_matching(tenant_id, wanted, now))
    return int((await connection.execute(query)).scalar_one())


def _matching(tenant_id: str, wanted: SessionFilter, now: int) -> list[ColumnElement[bool]]:
    found = [
        of_tenant(sessions, tenant_id),
        sessions.c.revoked_at.is_(None),
        sessions.c.expires_at > now - MAX_CLOCK_LAG,
    ]
    if wanted.agent_role is not None:
        found.append(sessions.c.agent_role == wanted.agent_role)
    if wanted.agent_id is not None:
        found.append(sessions.c.agent_id == wanted.agent_id)
    if wanted.user_ids:
        found.append(sessions.c.user_id.in_(wanted.user_ids))
    return found


async def revoke_all(
    connection: AsyncConnection, tenant_id: str, ids: Sequence[str], reason: str, now: int
) -> list[SessionRow]:
    """Revokes the sessions of these ids that are not revoked yet, and returns their new rows."""
    # A session revoked since it was found keeps its first time and reason.
    which = (
        of_tenant(sessions, tenant_id),
        sessions.c.session_id.in_(ids),
        sessions.c.revoked_at.is_(None),
    )
    # Lock them in order of id, so that two replicas that revoke overlapping pages can't deadlock.
    query = select(*columns_of(sessions)).where(*which).order_by(sessions.c.session_id)
    rows = [SessionRow(*row) for row in await connection.execute(query.with_for_update())]
    if rows:
        await connection.execute(
            update(sessions).where(*which).values(revoked_at=now, revocation_reason=reason)
        )
    return [row._replace(revoked_at=now, revocation_reason=reason) for row in rows]
