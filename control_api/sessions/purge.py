"""Purges one tenant's sessions that expired or were revoked long enough ago. Keeps only their ids.

Independent of the log's retention: the events of a purged session stay in the log. Knows nothing of
when to run.
"""

import asyncio
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.dimensions import DAY
from control_api.store.queries import ended_sessions, tenant_rows
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.sets.policy_set import session_name
from policies.trail.change import change_record

BATCH = 100
"""Sessions per transaction: on SQLite, evaluations wait for it."""
PAUSE_SECONDS = 0.02


async def purge_sessions(store: Store, tenant_id: str, new_id: Callable[[], str]) -> int:
    """Returns the number of purged sessions. Raises `Unavailable` if the database fails. If we die
    during a purge, completed transactions stay, and the next run continues."""
    now, after, removed = store.clock.now(), "", 0
    while True:
        async with store.reading(tenant_id) as connection:
            cutoff = await _cutoff(connection, tenant_id, now)
            if cutoff is None:
                return removed
            ids = await ended_sessions.candidates(connection, tenant_id, cutoff, now, after, BATCH)
        if not ids:
            return removed
        removed += await _purge(store, tenant_id, ids, now, new_id)
        # Continue after these even if some were kept: a page of them would repeat forever.
        after = ids[-1]
        await asyncio.sleep(PAUSE_SECONDS)


async def _purge(
    store: Store, tenant_id: str, ids: list[str], now: int, new_id: Callable[[], str]
) -> int:
    async def work(tx: Transaction) -> int:
        # Check again under the tenant's lock: the setting may have changed, or another replica may
        # have been first.
        cutoff = await _cutoff(tx.connection, tenant_id, now)
        if cutoff is None:
            return 0  # retention has been switched off since the read
        ended = await ended_sessions.end(tx.connection, tenant_id, ids, cutoff, now)
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
