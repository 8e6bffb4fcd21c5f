"""The logs that someone asked to verify now, for the loop that does it.

Releases a lease whose work breaks off, such as at a stop.

A lease that stayed would keep every process from the log until it ends, ten minutes later.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from control_api.store.errors import WriteFault
from control_api.store.store import Store
from control_api.store.transaction import Transaction


class AskedLogs:
    """The tenants whose logs are to be verified, in the order in which they were asked for; each
    is in it once."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}
        self._some = asyncio.Event()

    def add(self, tenant_id: str) -> None:
        self._asked[tenant_id] = None
        self._some.set()

    async def next(self) -> str:
        """Wait for the next one, and take it out."""
        await self._some.wait()
        tenant_id = next(iter(self._asked))
        del self._asked[tenant_id]
        if not self._asked:
            self._some.clear()
        return tenant_id


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
