"""Ends sessions. Finds those that match a filter, page by page, and revokes them in bulk. Purges
those that ended long enough ago, of which only the ids are kept.

This is independent of the log's retention: the events of a purged session stay in the log.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.counters import DAY
from control_api.store.queries import session_rows, tenant_rows
from control_api.store.queries.session_rows import MAX_CLOCK_LAG, SessionRow
from control_api.store.schema.statements import columns_of, newest_first, of_tenant
from control_api.store.schema.tables import sessions
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.sets.policy_set import session_name
from policies.trail.change import change_record

SessionPosition = tuple[int, str]
"""The position after a page: `(created_at, session_id)` of its last session."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """A filter of sessions. A session must match every given field exactly, but only one of
    `user_ids`: a user may be recorded both in clear and masked."""

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
    """Return a page of matching sessions that are not revoked, newest first, beginning after the
    position `after`.

    Sessions that expired within the last day are included, because a sidecar whose clock is behind
    may still consider them active.
    """
    columns = select(sessions.c.created_at, sessions.c.session_id)
    query = columns.where(*_matching(tenant_id, wanted, now))
    query = newest_first(query, sessions.c.created_at, sessions.c.session_id, after, limit)
    return [(row[0], row[1]) for row in await connection.execute(query)]


async def count_revocable(
    connection: AsyncConnection, tenant_id: str, wanted: SessionFilter, now: int
) -> int:
    """Count the sessions that `revocable` finds on all its pages."""
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


async def revoke_matching(
    connection: AsyncConnection, tenant_id: str, ids: Sequence[str], reason: str, now: int
) -> list[SessionRow]:
    """Revoke those sessions among `ids` that are not revoked yet, and return their new rows."""
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


BATCH = 100
"""The most sessions that one transaction purges: on SQLite, evaluations wait for it."""
PAUSE_SECONDS = 0.02


async def purge_sessions(store: Store, tenant_id: str, new_id: Callable[[], str]) -> int:
    """Purge the tenant's sessions that ended long enough ago, and return their number. Raise
    `Unavailable` if the database fails. If the process dies during a purge, completed transactions
    stay, and the next run continues."""
    now, after, removed = store.clock.now(), "", 0
    while True:
        async with store.reading(tenant_id) as connection:
            cutoff = await _cutoff(connection, tenant_id, now)
            if cutoff is None:
                return removed
            ids = await session_rows.sessions_to_purge(
                connection, tenant_id, cutoff, now, after, BATCH
            )
        if not ids:
            return removed
        removed += await _purge_batch(store, tenant_id, ids, now, new_id)
        # Continue after these even if some were kept: a page of them would repeat forever.
        after = ids[-1]
        await asyncio.sleep(PAUSE_SECONDS)


async def _purge_batch(
    store: Store, tenant_id: str, ids: list[str], now: int, new_id: Callable[[], str]
) -> int:
    async def work(tx: Transaction) -> int:
        # Check again under the tenant's lock: the setting may have changed, or another replica may
        # have been first.
        cutoff = await _cutoff(tx.connection, tenant_id, now)
        if cutoff is None:
            return 0  # retention has been switched off since the read
        ended = await session_rows.purge_ended(tx.connection, tenant_id, ids, cutoff, now)
        if ended:
            # The document told sidecars of the revocation. The session's lifetime has passed, so no
            # sidecar mistakes it for active without the document.
            revoked = [session_id for session_id, revoked in ended if revoked]
            await tx.publish({session_name(session_id): None for session_id in revoked})
            detail = {"sessions": len(ended), "revoked": len(revoked)}
            await tx.append(
                change_record("sessions.purged", tenant_id, "system", detail, record_id=new_id())
            )
        return len(ended)

    return await store.write(tenant_id, work)


async def _cutoff(connection: AsyncConnection, tenant_id: str, now: int) -> int | None:
    tenant = await tenant_rows.get(connection, tenant_id)
    if tenant is None or not tenant.session_retention_days:
        return None
    return now - tenant.session_retention_days * DAY
