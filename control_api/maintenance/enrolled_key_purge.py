"""Deletes one tenant's expired keys of enrolled pods: a pod leaves four of them every hour. That
they were issued stays in the log. Knows nothing of when to run."""

import asyncio

from control_api.store.queries import enrolled_keys
from control_api.store.store import Store
from control_api.store.transaction import Transaction

PAUSE_SECONDS = 0.02
# An expired key is refused as expired for this long, and as unknown after that, so that an operator
# who reads a sidecar's log is told which it was.
KEPT = 3_600_000_000
"""Microseconds."""


async def forget_expired_keys(store: Store, tenant_id: str) -> int:
    """Returns the number of deleted keys. If we die in between, the next run continues."""
    before, removed = store.clock.now() - KEPT, 0

    async def work(tx: Transaction) -> int:
        return await enrolled_keys.delete_expired(tx.connection, tx.tenant_id, before)

    while True:
        found = await store.write(tenant_id, work)
        removed += found
        if found < enrolled_keys.EXPIRED_AT_ONCE:
            return removed
        await asyncio.sleep(PAUSE_SECONDS)
