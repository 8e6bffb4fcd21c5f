"""Delivers fired alerts in a loop, and retries each delivery for up to a day, across restarts.

    due > lease, so that no other process takes it > attempt > settled, or due again later

At most one process at a time attempts a delivery. The hourly retention deletes settled deliveries
of alerts that fired long ago, so that a rule that fires every minute can't fill the store.
"""

import logging
import random
from collections import Counter

from control_api.alerts import channels, queries
from control_api.alerts.channels import Alerts, DeliveryFailed, poll
from control_api.alerts.queries import StoredDelivery
from control_api.metrics.labels import DeliveryOutcome
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.errors import Unavailable
from policies.ground.process.outage_logger import OutageLogger

POLL_SECONDS = 0.25
# The maximum number of attempts under way: in total, and to one target, so that a receiver that
# hangs does not delay others.
MAX_ATTEMPTS = 32
MAX_PER_TARGET = 2
LEASE = 60 * 1_000_000
"""The microseconds for which an attempt reserves its delivery. They are more than any attempt
takes."""
DAY = 86_400 * 1_000_000
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
"""The upper limit in seconds of the pause after the first attempt, and after any attempt. The limit
doubles each time, and the actual pause is random (full jitter)."""
_log = logging.getLogger("sluice.alerts")


class DeliveryLoop:
    """Attempts the deliveries that are due, in this process. `_active` maps the ids of deliveries
    under way to their targets."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        self._active: dict[str, str] = {}
        self._outage = OutageLogger(_log, "alerts can't be delivered", "alerts are delivered again")

    async def run(self) -> None:
        await poll(POLL_SECONDS, self.start_due, self._outage)

    async def start_due(self) -> None:
        """Start attempts of the deliveries that are due, within the limits on concurrent
        attempts."""
        room = MAX_ATTEMPTS - len(self._active)
        if room <= 0:
            return
        busy = Counter(self._active.values())
        full = [target for target, attempts in busy.items() if attempts >= MAX_PER_TARGET]
        async with self._alerts.store.reading_all_tenants() as connection:
            # Without the full targets: however many deliveries wait for one that hangs, they must
            # not fill the page. More than there is room for, since many may have the same target.
            due = await queries.due_deliveries(
                connection, self._alerts.clock.now(), 4 * MAX_ATTEMPTS, full
            )
        for tenant_id, delivery in due:
            target = delivery.target or ""
            if delivery.delivery_id in self._active or busy[target] >= MAX_PER_TARGET:
                continue
            if room == 0:
                break  # the rest stays due, and the next poll finds it
            room -= 1
            busy[target] += 1
            self._active[delivery.delivery_id] = target
            self._alerts.store.group.create_task(self._attempt(tenant_id, delivery))

    async def _attempt(self, tenant_id: str, delivery: StoredDelivery) -> None:
        # If we die before the lease ends, another process repeats the attempt, under the same id.
        try:
            if await self._lease(tenant_id, delivery):
                await self._settle(tenant_id, delivery, await self._deliver(tenant_id, delivery))
        except Unavailable as error:
            # The attempt may have succeeded. Once the lease has expired, it is due again.
            _log.warning(
                "delivery `%s` was not settled and will be repeated: %s",
                delivery.delivery_id,
                error.message,
            )
        finally:
            del self._active[delivery.delivery_id]

    async def _lease(self, tenant_id: str, delivery: StoredDelivery) -> bool:
        async def work(tx: Transaction) -> bool:
            return await queries.lease_delivery(tx.connection, tenant_id, delivery, tx.now + LEASE)

        return await self._alerts.store.write(tenant_id, work)

    async def _deliver(self, tenant_id: str, delivery: StoredDelivery) -> DeliveryFailed | None:
        """Attempt the delivery. Return None on success, otherwise the failure."""
        alerts = self._alerts
        try:
            if delivery.channel == "webhook":
                now = alerts.clock.now()
                await channels.deliver_by_webhook(alerts.allowed_hosts, tenant_id, delivery, now)
            else:
                await channels.deliver_by_email(alerts.mail, tenant_id, delivery)
        except DeliveryFailed as error:
            return error
        return None

    async def _settle(
        self, tenant_id: str, delivery: StoredDelivery, failed: DeliveryFailed | None
    ) -> None:
        pause = 0.0
        if failed is not None:
            most = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(delivery.attempts, 20))
            # Full jitter: alerts that failed together must not all be repeated together.
            pause = random.uniform(0.1, most)  # noqa: S311  # spreads load, guards nothing

        async def work(tx: Transaction) -> str:
            again = None if failed is None or failed.final else tx.now + int(pause * 1e6)
            if again is not None and again > delivery.fired_at + DAY:
                again = None  # give up after a day
            status = "delivered" if failed is None else "failed" if again is None else "pending"
            await queries.settle_delivery(
                tx.connection,
                tenant_id,
                delivery.delivery_id,
                status=status,
                last_error=None if failed is None else str(failed)[:500],
                next_attempt_at=again,
            )
            return status

        # If we die before the commit, the receiver may get the alert twice, under one id.
        status = await self._alerts.store.write(tenant_id, work)
        outcome = DeliveryOutcome.retried if status == "pending" else DeliveryOutcome(status)
        self._alerts.metrics.deliveries.labels(delivery.channel, outcome).inc()
        if failed is not None:
            _log.warning("delivery `%s` failed: %s", delivery.delivery_id, failed)


KEPT_DELIVERIES = 90 * DAY
"""The microseconds for which a settled delivery is kept, counted from when the alert fired."""
FORGOTTEN_AT_ONCE = 500
"""The most deliveries that one transaction deletes."""


async def delete_old_deliveries(store: Store, tenant_id: str) -> int:
    """Delete the tenant's old settled deliveries, and return their number. Raise `Unavailable` if
    the database fails."""

    async def work(tx: Transaction) -> int:
        return await queries.forget_deliveries(
            tx.connection, tenant_id, tx.now - KEPT_DELIVERIES, FORGOTTEN_AT_ONCE
        )

    # In small transactions, so that evaluations do not wait long for the tenant's lock.
    deleted = 0
    while (count := await store.write(tenant_id, work)) > 0:
        deleted += count
        if count < FORGOTTEN_AT_ONCE:
            break
    return deleted
