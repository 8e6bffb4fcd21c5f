"""How long impact runs are kept once they have ended. Each may have a megabyte of groups."""

from control_api.store.counters.dimensions import DAY
from control_api.store.queries import impact_runs
from control_api.store.store import Store
from control_api.store.transaction import Transaction

KEPT = 7 * DAY
"""Microseconds since the run ended."""
MOST = 50
"""The most ended runs of one tenant."""


async def forget_ended(tx: Transaction) -> int:
    """Deletes the tenant's runs that ended too long ago, or are too many. Returns how many."""
    return await impact_runs.forget(tx.connection, tx.tenant_id, tx.now - KEPT, MOST)


async def forget_ended_runs(store: Store, tenant_id: str) -> int:
    """`forget_ended` for the hourly retention. Raises `Unavailable` if the database fails."""
    return await store.write(tenant_id, forget_ended)
