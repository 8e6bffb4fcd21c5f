"""Retention of one tenant's sessions: those that expired or were revoked long enough ago go, but
for their ids. Apart from the log's, whose events stay. Knows nothing of when to run.
"""

import asyncio
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.dimensions import DAY
from control_api.store.queries import ended_sessions, tenants
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.sets.policy_set import session_name
from policies.trail.record import change_record

MOST = 100
"""Sessions of one transaction: on SQLite whoever evaluates waits for it."""
PAUSE = 0.02


async def purge_sessions(store: Store, tenant_id: str, new_id: Callable[[], str]) -> int:
    """How many went; `Unavailable` where the database fails. If we die in it, those of whole
    transactions are gone, and the next run goes on."""
    now, after, removed = store.clock.now(), "", 0
    while True:
        async with store.reading(tenant_id) as connection:
            cutoff = await _cutoff(connection, tenant_id, now)
            if cutoff is None:
                return removed
            ids = await ended_sessions.candidates(connection, tenant_id, cutoff, now, after, MOST)
        if not ids:
            return removed
        removed += await _purge(store, tenant_id, ids, now, new_id)
        after = ids[-1]
        await asyncio.sleep(PAUSE)


async def _purge(
    store: Store, tenant_id: str, ids: list[str], now: int, new_id: Callable[[], str]
) -> int:
    async def work(tx: Transaction) -> int:
        # Once more, under the tenant's lock: the setting may have changed, another replica may have
        # been first.
        cutoff = await _cutoff(tx.connection, tenant_id, now)
        if cutoff is None:
            return 0
        gone = await ended_sessions.end(tx.connection, tenant_id, ids, cutoff, now)
        if gone:
            # A document is what tells sidecars of a revocation. None takes these for alive now.
            revoked = [session_id for session_id, revoked in gone if revoked]
            await tx.publish({session_name(session_id): None for session_id in revoked})
            detail = {"sessions": len(gone), "revoked": len(revoked)}
            await tx.append(
                change_record("sessions.purged", tenant_id, "system", detail, record_id=new_id())
            )
        return len(gone)

    return await store.write(tenant_id, work)


async def _cutoff(connection: AsyncConnection, tenant_id: str, now: int) -> int | None:
    tenant = await tenants.get(connection, tenant_id)
    if tenant is None or not tenant.session_retention_days:
        return None
    return now - tenant.session_retention_days * DAY
