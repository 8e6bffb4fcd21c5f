"""The loop that measures rules and fires them: off the path of every evaluation.

    which logs grew? > measure their rules > one transaction: the rule has fired, its deliveries

A log that did not grow is looked at now and then only, for a cooldown that ended. Knows nothing of
how a delivery is made.
"""

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from control_api.alerts.measurements import Measurement, measure
from control_api.app_context import AppContext
from control_api.store.counters.dimensions import MINUTE
from control_api.store.queries import alerts, deliveries
from control_api.store.queries.alerts import StoredRule
from control_api.store.queries.deliveries import StoredDelivery
from control_api.store.transaction import Transaction
from policies.ground.errors import Unavailable
from policies.ground.ids import prefixed

LOOK_SECONDS = 0.5
IDLE_LOOKS = 20
"""After so many looks a log is measured although it did not grow."""
_log = logging.getLogger("sluice.alerts")


class AlertEvaluator:
    """Every tenant's rules. `_seen` is how long each log was when it was last measured."""

    def __init__(self, service: AppContext) -> None:
        self._service = service
        self._seen: dict[str, int] = {}
        self._looks = 0

    async def run(self) -> None:
        """For ever. A store that does not answer is asked again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Unavailable as error:
                _log.warning("alert rules can't be measured: %s", error.message)

    async def look(self) -> None:
        """Measure the rules of every log that grew."""
        async with self._service.store.reading_all_tenants() as connection:
            sizes = await alerts.watched(connection)
        self._looks += 1
        everyone = self._looks % IDLE_LOOKS == 0
        grown = [t for t, size in sizes.items() if everyone or self._seen.get(t) != size]
        self._seen = {tenant: size for tenant, size in self._seen.items() if tenant in sizes}
        for tenant_id in grown:
            await self._measure(tenant_id)
            self._seen[tenant_id] = sizes[tenant_id]

    async def _measure(self, tenant_id: str) -> None:
        now = self._service.clock.now()
        reached: list[tuple[StoredRule, Measurement]] = []
        async with self._service.store.reading(tenant_id) as connection:
            for rule in await alerts.enabled(connection, tenant_id):
                if not quiet(rule, now):
                    measured = await measure(connection, tenant_id, rule, now)
                    if measured.reached:
                        reached.append((rule, measured))
        for rule, measured in reached:
            await self._fire(tenant_id, rule, measured)

    async def _fire(self, tenant_id: str, rule: StoredRule, measured: Measurement) -> None:
        service = self._service

        async def work(tx: Transaction) -> bool:
            # INVARIANT: of all that saw the rule as it was, one moves its last firing.
            if not await alerts.fired(tx.connection, tenant_id, rule, tx.now):
                return False
            rows = deliveries_of(rule, measured, tx.now, service.entropy)
            await deliveries.add(tx.connection, tenant_id, rows)
            return True

        # If we die after the commit, the deliveries are there for whoever comes next.
        if await service.store.write(tenant_id, work):
            service.instruments.alerts.labels(rule.rule_type).inc()
            _log.info("alert rule `%s` fired: %s", rule.rule_id, rule.rule_type)


def quiet(rule: StoredRule, now: int) -> bool:
    """Whether the rule fired so lately that it must not fire again."""
    last = rule.last_fired_at
    return last is not None and now < last + rule.cooldown_minutes * MINUTE


def deliveries_of(
    rule: StoredRule, measured: Measurement, now: int, entropy: Callable[[int], bytes]
) -> list[StoredDelivery]:
    """One for each channel of the rule; one that goes nowhere where it has none."""
    channels: list[tuple[str, str | None, str | None]] = [
        ("webhook", rule.webhook_url, rule.webhook_secret),
        ("email", rule.email, None),
    ]
    named = [each for each in channels if each[1]] or [("none", None, None)]
    return [
        StoredDelivery(
            delivery_id=prefixed("dlv_", entropy(16)),
            rule_id=rule.rule_id,
            rule_name=rule.name,
            rule_type=rule.rule_type,
            fired_at=now,
            detail=measured.detail,
            channel=channel,
            target=None if address is None else target_of(channel, address),
            address=address,
            secret=secret,
            status="no_destination" if address is None else "pending",
            attempts=0,
            last_error=None,
            next_attempt_at=None if address is None else now,
        )
        for channel, address, secret in named
    ]


def target_of(channel: str, address: str) -> str:
    """Where a delivery goes, without what may be a secret: a webhook's path often is one."""
    if channel == "email":
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
