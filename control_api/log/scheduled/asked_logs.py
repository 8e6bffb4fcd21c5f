"""Keeps the queue of logs that someone asked to verify now; and leases a log, so that one process
at a time works on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Generic

from control_api.store.errors import WriteFault
from control_api.store.queries.leases import A, Leases, S
from control_api.store.store import Store
from control_api.store.transaction import Transaction

LEASE = 600_000_000
"""Duration of a lease in microseconds. If the process that holds it has died, another one continues
after this time."""


class AskedLogs:
    """A queue of the tenants whose logs someone asked to verify now. Each tenant is in it at most
    once."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}
        self._some = asyncio.Event()

    def add(self, tenant_id: str) -> None:
        self._asked[tenant_id] = None
        self._some.set()

    async def next(self) -> str:
        """Wait for the next tenant, and remove it from the queue."""
        await self._some.wait()
        tenant_id = next(iter(self._asked))
        del self._asked[tenant_id]
        if not self._asked:
            self._some.clear()
        return tenant_id


class LeaseLost(Exception):
    """another process works on the log now, or somebody asked for it to begin again"""


@dataclass(slots=True)
class Lease(Generic[S, A]):
    """A lease of one log, stored in the log's row in `leases`. It ends at `until`
    (microseconds)."""

    store: Store
    leases: Leases[S, A]
    tenant_id: str
    until: int

    async def claim(self, first: S, now: int) -> S | A | None:
        """Take the lease and return the log's stored state; None while another process has the
        lease. `first` is the state that a new log gets."""

        async def work(tx: Transaction) -> S | A | None:
            return await self.leases.claim(tx.connection, self.tenant_id, first, now, self.until)

        return await self.store.write(self.tenant_id, work)

    async def keep(self) -> None:
        """Renew the lease if it ends soon. Raises `LeaseLost` if another process has it."""
        now = self.store.clock.now()
        if now < self.until - LEASE // 2:
            return
        until = now + LEASE

        async def work(tx: Transaction) -> bool:
            return await self.leases.renew(tx.connection, self.tenant_id, self.until, until)

        if not await self.store.write(self.tenant_id, work):
            raise LeaseLost
        self.until = until

    async def end(self, after: S) -> None:
        """Save the state, which ends the lease, unless the lease was lost."""

        async def work(tx: Transaction) -> None:
            await self.leases.put(tx.connection, self.tenant_id, self.until, after)

        await self.store.write(self.tenant_id, work)

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Release the lease if the block is cancelled or raises, and let the exception go on. A
        lease that stayed would keep every process from the log until it ends."""
        try:
            yield
        except BaseException:

            async def work(tx: Transaction) -> None:
                await self.leases.release(tx.connection, self.tenant_id, self.until)

            # If the database is away, the lease ends by itself. What broke off is raised all the
            # same: without its cancellation, a stop would not end.
            with suppress(WriteFault):
                await self.store.write(self.tenant_id, work)
            raise
