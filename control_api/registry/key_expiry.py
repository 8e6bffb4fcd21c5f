"""Warns before API keys expire, and deletes expired keys of enrolled pods.

For each tenant, the keys that expire next are read every hour and after a change of its keys; the
metrics show the last result. No secret is read: only a key's id, name, scope, agents and expiry.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from control_api.jitter import jitter
from control_api.metrics.metrics import JobMetrics
from control_api.store.counters.counters import DAY
from control_api.store.queries import key_rows, tenant_rows
from control_api.store.store import Store
from control_api.store.transaction import Published, Transaction
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.sets.policy_set import key_name

INTERVAL_SECONDS = 3600.0
DEBOUNCE_SECONDS = 1.0
"""The seconds within which several changes of keys cause a single read."""
WARN_DAYS = 14
REPEAT_SECONDS = 86_400.0
"""The seconds after which the warning about a key is repeated."""
MAX_KEYS = 20
"""The most keys of a tenant that are read, and thus warned about."""
_KEY_PREFIX = key_name(b"")
_log = logging.getLogger("sluice.keys")


class KeyExpiry:
    """Checks regularly which API keys expire soon, and remembers the next expiry of each tenant."""

    def __init__(
        self, store: Store, clock: Clock, entropy: Callable[[int], bytes], metrics: JobMetrics
    ) -> None:
        self._store, self._clock, self._entropy = store, clock, entropy
        self._next: dict[str, int] = {}
        self._warned: dict[str, float] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        store.on_published(self._published)
        metrics.key_expiry.set_function(self.seconds)

    def seconds(self) -> float:
        """Return the seconds until the next live key of any tenant expires, or NaN if none
        expires."""
        now = self._clock.now()
        live = (expires_at for expires_at in self._next.values() if expires_at > now)
        return (min(live, default=math.nan) - now) / 1e6

    async def run(self) -> None:
        """Check the keys' expiry for as long as the app runs."""
        monotonic, due = self._clock.monotonic, 0.0
        while True:
            if monotonic() >= due:
                await self.check_all()
                due = monotonic() + INTERVAL_SECONDS * jitter(self._entropy)
            try:
                async with asyncio.timeout(due - monotonic()):
                    await self._wake.wait()
                    await asyncio.sleep(DEBOUNCE_SECONDS)
            except TimeoutError:
                continue
            # Cleared before the reads: a change during one of them wakes the loop again.
            self._wake.clear()
            while self._changed:
                await self._check(self._changed.pop())

    async def check_all(self) -> None:
        """Check the keys of every active tenant."""
        try:
            async with self._store.reading_all_tenants() as connection:
                active = [
                    each.tenant_id for each in await tenant_rows.known(connection) if each.active
                ]
        except SluiceError as error:
            _log.warning("the expiry of keys can't be read: %s", error.message)
            return
        # Tenants and keys that no longer exist are dropped here, so neither mapping grows forever.
        now = self._clock.monotonic()
        self._warned = {k: at for k, at in self._warned.items() if now - at < REPEAT_SECONDS}
        self._next = {each: self._next[each] for each in active if each in self._next}
        for tenant_id in active:
            await self._check(tenant_id)

    async def _check(self, tenant_id: str) -> None:
        now = self._clock.now()
        try:
            async with self._store.reading(tenant_id) as connection:
                found = await key_rows.expiring(connection, tenant_id, now, MAX_KEYS)
        except SluiceError as error:
            # The last result stays in use; the next check comes within the hour.
            _log.warning(
                "the expiry of tenant `%s`'s keys can't be read: %s", tenant_id, error.message
            )
            return
        if found:
            self._next[tenant_id] = found[0][1]
        else:
            self._next.pop(tenant_id, None)
        for key, expires_at in found:
            if expires_at - now <= WARN_DAYS * DAY:
                self._warn(tenant_id, key, expires_at - now)

    def _warn(self, tenant_id: str, key: key_rows.NamedKey, left: int) -> None:
        monotonic = self._clock.monotonic()
        if monotonic - self._warned.get(key.key_id, -math.inf) < REPEAT_SECONDS:
            return
        self._warned[key.key_id] = monotonic
        _log.warning(
            "key %s of tenant `%s` expires in %.1f days: create a new one in time",
            key,
            tenant_id,
            left / DAY,
        )

    def _published(self, tenant_id: str, published: Published) -> None:
        if any(name.startswith(_KEY_PREFIX) for name in published.documents):
            self._changed.add(tenant_id)
            self._wake.set()


PAUSE_SECONDS = 0.02
# An expired key is refused as expired for this long, and as unknown after that, so that an operator
# who reads a sidecar's log is told which it was.
KEPT = 3_600_000_000
"""The microseconds for which the expired key of an enrolled pod is kept."""


async def forget_expired_keys(store: Store, tenant_id: str) -> int:
    """Delete the tenant's expired keys of enrolled pods, and return their number. The log still
    shows that they were issued. If the process dies in between, the next run continues."""
    before, removed = store.clock.now() - KEPT, 0

    async def work(tx: Transaction) -> int:
        return await key_rows.delete_expired_enrolled(tx.connection, tx.tenant_id, before)

    while True:
        found = await store.write(tenant_id, work)
        removed += found
        if found < key_rows.EXPIRED_AT_ONCE:
            return removed
        await asyncio.sleep(PAUSE_SECONDS)
