"""Deliveries that were settled long ago go: a rule that fires every minute must not fill the store.
Knows nothing of when to run."""

from control_api.store.counters.dimensions import DAY
from control_api.store.queries import deliveries
from control_api.store.store import Store
from control_api.store.transaction import Transaction

KEPT = 90 * DAY
"""Microseconds from the firing."""
MOST = 500
"""Deliveries of one transaction."""


async def forget_deliveries(store: Store, tenant_id: str) -> int:
    """How many went; `Unavailable` where the database fails."""

    async def work(tx: Transaction) -> int:
        return await deliveries.forget(tx.connection, tenant_id, tx.now - KEPT, MOST)

    gone = 0
    while (some := await store.write(tenant_id, work)) > 0:
        gone += some
        if some < MOST:
            break
    return gone
