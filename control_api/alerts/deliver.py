"""The loop that delivers what rules fired: for a day, over restarts, by one process at a time.

    due > lease, so that nobody else takes it > attempt > settled, or due again later

A lease runs out: if we die during an attempt, another makes it again under the same id. Many
attempts run side by side and few to one host, so a receiver that hangs delays nothing else.
"""

import asyncio
import logging
import random
from collections import Counter

from control_api.alerts import email, webhook
from control_api.alerts.delivery_error import DeliveryFailed
from control_api.app_context import AppContext
from control_api.metrics.metrics import DeliveryOutcome
from control_api.store.queries import deliveries
from control_api.store.queries.deliveries import StoredDelivery
from control_api.store.transaction import Transaction
from policies.ground.errors import Unavailable

LOOK_SECONDS = 0.25
AT_ONCE = 32
AT_ONE_TARGET = 2
LEASE = 60 * 1_000_000
"""Microseconds, longer than any attempt takes."""
DAY = 86_400 * 1_000_000
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
"""Seconds between attempts: doubled each time, with full jitter."""
_log = logging.getLogger("sluice.alerts")


class Deliveries:
    """What is under way in this process."""

    def __init__(self, service: AppContext) -> None:
        self._service = service
        self._under_way: dict[str, str] = {}

    async def run(self) -> None:
        """For ever. A store that does not answer is asked again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Unavailable as error:
                _log.warning("alerts can't be delivered: %s", error.message)

    async def look(self) -> None:
        """Begin what is due and has room."""
        room = AT_ONCE - len(self._under_way)
        if room <= 0:
            return
        async with self._service.store.reading_all_tenants() as connection:
            due = await deliveries.due(connection, self._service.clock.now(), 4 * AT_ONCE)
        busy = Counter(self._under_way.values())
        for tenant_id, delivery in due:
            target = delivery.target or ""
            if delivery.delivery_id in self._under_way or busy[target] >= AT_ONE_TARGET:
                continue
            if room == 0:
                break
            room -= 1
            busy[target] += 1
            self._under_way[delivery.delivery_id] = target
            self._service.store.group.create_task(self._attempt(tenant_id, delivery))

    async def _attempt(self, tenant_id: str, delivery: StoredDelivery) -> None:
        try:
            if await self._lease(tenant_id, delivery):
                await self._settle(tenant_id, delivery, await self._deliver(tenant_id, delivery))
        except Unavailable as error:
            # Its lease runs out, and then it is due again.
            _log.warning("delivery %s is left: %s", delivery.delivery_id, error.message)
        finally:
            del self._under_way[delivery.delivery_id]

    async def _lease(self, tenant_id: str, delivery: StoredDelivery) -> bool:
        async def work(tx: Transaction) -> bool:
            return await deliveries.lease(tx.connection, tenant_id, delivery, tx.now + LEASE)

        return await self._service.store.write(tenant_id, work)

    async def _deliver(self, tenant_id: str, delivery: StoredDelivery) -> DeliveryFailed | None:
        """None where it was taken."""
        service, settings = self._service, self._service.settings
        try:
            if delivery.channel == "webhook":
                now = service.clock.now()
                await webhook.deliver(settings.webhook_allow, tenant_id, delivery, now)
            else:
                server, sender = settings.smtp_url, settings.smtp_from
                await email.deliver(server, sender, tenant_id, delivery)
        except DeliveryFailed as error:
            return error
        return None

    async def _settle(
        self, tenant_id: str, delivery: StoredDelivery, failed: DeliveryFailed | None
    ) -> None:
        pause = 0.0
        if failed is not None:
            most = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(delivery.attempts, 20))
            pause = random.uniform(0.1, most)  # noqa: S311  # spreads load, guards nothing

        async def work(tx: Transaction) -> str:
            again = None if failed is None or failed.final else tx.now + int(pause * 1e6)
            if again is not None and again > delivery.fired_at + DAY:
                again = None
            status = "delivered" if failed is None else "failed" if again is None else "pending"
            await deliveries.settle(
                tx.connection,
                tenant_id,
                delivery.delivery_id,
                status=status,
                last_error=None if failed is None else str(failed)[:500],
                next_attempt_at=again,
            )
            return status

        # If we die before the commit the receiver may hear of it twice, under one id.
        status = await self._service.store.write(tenant_id, work)
        outcome = DeliveryOutcome.retried if status == "pending" else DeliveryOutcome(status)
        self._service.instruments.deliveries.labels(delivery.channel, outcome).inc()
        if failed is not None:
            _log.warning("delivery %s: %s", delivery.delivery_id, failed)
