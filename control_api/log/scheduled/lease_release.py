"""Releases a lease whose work breaks off, such as at a stop. Knows neither lease nor log.

A lease that stayed would keep every process from the log until it ends, ten minutes later.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from control_api.store.errors import WriteFault
from control_api.store.store import Store
from control_api.store.transaction import Transaction


@asynccontextmanager
async def released(
    store: Store, tenant_id: str, release: Callable[[Transaction], Awaitable[None]]
) -> AsyncIterator[None]:
    """Runs `release` in a transaction if the block is cancelled or raises, which then goes on."""
    try:
        yield
    except BaseException:
        # If the database is away, the lease ends by itself. What broke off is raised all the same:
        # without its cancellation, a stop would not end.
        with suppress(WriteFault):
            await store.write(tenant_id, release)
        raise
