"""Deletes settled deliveries of alerts that fired long ago, so that a rule that fires every minute
can't fill the store. The hourly retention calls it."""

from control_api.alerts import delivery_queries
from control_api.store.counters.dimensions import DAY
from control_api.store.store import Store
from control_api.store.transaction import Transaction

KEPT = 90 * DAY
"""How long a settled delivery is kept: microseconds since the alert fired."""
BATCH = 500
"""Deliveries per transaction."""


async def delete_old_deliveries(store: Store, tenant_id: str) -> int:
    """Returns the number of deleted deliveries. Raises `Unavailable` if the database fails."""

    async def work(tx: Transaction) -> int:
        return await delivery_queries.forget(tx.connection, tenant_id, tx.now - KEPT, BATCH)

    # In small transactions, so that evaluations do not wait long for the tenant's lock.
    deleted = 0
    while (count := await store.write(tenant_id, work)) > 0:
        deleted += count
        if count < BATCH:
            break
    return deleted
