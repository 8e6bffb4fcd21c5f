"""One comparison of a log's counts with its entries, once a day and when it is asked for.

    claim      the log, so that one process at a time compares its counts
    compare    `control_api.log.counts`
    save       what it found, which stays until the next comparison

It is a walk by itself and in one go, beside the verification's: what it sums up stays in this
process, which a change of the database does not reach. Does not decide when to run.
"""

from collections.abc import Callable

from control_api.log.counts import SECRET_BYTES, EntriesMoved, compare_counts
from control_api.log.scheduled.lease_release import released
from control_api.log.scheduled.self_check import ROUND
from control_api.store.queries import count_checks
from control_api.store.queries.count_checks import ASKED_FOR, CountCheck
from control_api.store.store import Store
from control_api.store.transaction import Transaction

LEASE = 600_000_000
"""Microseconds after which another process compares, if the one that does has died."""


class LeaseLost(Exception):
    """another process compares the counts now, or somebody asked for it to begin again"""


class CountChecker:
    """Compares the counts of the logs of one store. `rest` is the time that other tasks get, as a
    multiple of the CPU time of the comparison."""

    def __init__(self, store: Store, entropy: Callable[[int], bytes], rest: float) -> None:
        self._store, self._entropy, self._rest = store, entropy, rest

    async def step(self, tenant_id: str) -> CountCheck:
        """The state after a comparison, if one was due. Nothing is done while another process
        compares, and if a purge came between: the next call does it."""
        now = self._store.clock.now()
        state = await self._state(tenant_id)
        if not _is_due(state, now):
            return state
        lease = _Lease(self._store, tenant_id, now + LEASE)
        async with released(self._store, tenant_id, lease.release):
            if not await lease.claim(now):
                return await self._state(tenant_id)
            after = CountCheck(state.checked_at, state.reason)
            secret = self._entropy(SECRET_BYTES)
            try:
                found = await compare_counts(self._store, tenant_id, secret, self._rest, lease.keep)
                after = CountCheck(self._store.clock.now(), None if found is None else found.text())
            except EntriesMoved:
                pass
            except LeaseLost:
                return await self._state(tenant_id)
        # If we die before this, another process compares once the lease has ended.
        await lease.end(after)
        return await self._state(tenant_id)

    async def _state(self, tenant_id: str) -> CountCheck:
        async with self._store.reading(tenant_id) as connection:
            return await count_checks.state(connection, tenant_id)


class _Lease:
    def __init__(self, store: Store, tenant_id: str, until: int) -> None:
        self._store, self._tenant_id, self._until = store, tenant_id, until

    async def claim(self, now: int) -> bool:
        async def work(tx: Transaction) -> bool:
            return await count_checks.claim(tx.connection, self._tenant_id, now, self._until)

        return await self._store.write(self._tenant_id, work)

    async def keep(self) -> None:
        """Renew it if it ends soon. Raises `LeaseLost`."""
        now = self._store.clock.now()
        if now < self._until - LEASE // 2:
            return

        async def work(tx: Transaction) -> bool:
            held, until = self._until, now + LEASE
            return await count_checks.renew(tx.connection, self._tenant_id, held, until)

        if not await self._store.write(self._tenant_id, work):
            raise LeaseLost
        self._until = now + LEASE

    async def release(self, tx: Transaction) -> None:
        await count_checks.release(tx.connection, self._tenant_id, self._until)

    async def end(self, after: CountCheck) -> None:
        async def work(tx: Transaction) -> None:
            await count_checks.put(tx.connection, self._tenant_id, self._until, after)

        await self._store.write(self._tenant_id, work)


def _is_due(state: CountCheck, now: int) -> bool:
    if state.leased_until == ASKED_FOR or state.checked_at is None:
        return True
    return now - state.checked_at >= ROUND
