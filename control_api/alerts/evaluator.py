"""The loop that measures alert rules and fires them. No evaluation ever waits for it.

    find the logs that grew > measure their rules > fire: one transaction with the deliveries

Knows nothing of how a delivery is sent.
"""

import asyncio
import logging
from collections.abc import Callable

from control_api.alerts import delivery_queries, rule_queries
from control_api.alerts.bundle import Alerts
from control_api.alerts.delivery_queries import Channel, StoredDelivery
from control_api.alerts.measurements import Measurement, measure
from control_api.alerts.models import target_of
from control_api.alerts.rule_queries import StoredRule
from control_api.store.counters.dimensions import MINUTE
from control_api.store.transaction import Transaction
from policies.ground.errors import Unavailable
from policies.ground.ids import prefixed
from policies.ground.process.outage_logger import OutageLogger

POLL_SECONDS = 0.5
# Every this many rounds, logs that did not grow are measured too: the cooldown of a rule may have
# ended while its window still reaches the threshold.
MEASURE_ALL_EVERY = 20
_log = logging.getLogger("sluice.alerts")


class AlertEvaluator:
    """All tenants' rules. `_measured` is each log's size when it was last measured."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        self._measured: dict[str, int] = {}
        self._rounds = 0
        self._outage = OutageLogger(
            _log, "alert rules can't be measured", "alert rules are measured again"
        )

    async def run(self) -> None:
        """Runs forever, and retries while the store is down."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.measure_grown()
            except Unavailable as error:
                self._outage.failing(error.message)
            else:
                self._outage.recovered()

    async def measure_grown(self) -> None:
        """Measure the rules of every log that grew."""
        async with self._alerts.store.reading_all_tenants() as connection:
            sizes = await rule_queries.watched(connection)
        self._rounds += 1
        all_logs = self._rounds % MEASURE_ALL_EVERY == 0
        grown = [t for t, size in sizes.items() if all_logs or self._measured.get(t) != size]
        # Forget logs that no rule watches any more.
        self._measured = {t: size for t, size in self._measured.items() if t in sizes}
        for tenant_id in grown:
            await self._measure(tenant_id)
            # Store the size from before the measurement: if the log grew during it, the next round
            # measures the log again.
            self._measured[tenant_id] = sizes[tenant_id]

    async def _measure(self, tenant_id: str) -> None:
        now = self._alerts.clock.now()
        reached: list[tuple[StoredRule, Measurement]] = []
        async with self._alerts.store.reading(tenant_id) as connection:
            for rule in await rule_queries.enabled(connection, tenant_id):
                if not cooling_down(rule, now):
                    measured = await measure(connection, tenant_id, rule, now)
                    if measured.reached:
                        reached.append((rule, measured))
        for rule, measured in reached:
            await self._fire(tenant_id, rule, measured)

    async def _fire(self, tenant_id: str, rule: StoredRule, measured: Measurement) -> None:
        alerts = self._alerts

        async def work(tx: Transaction) -> bool:
            # INVARIANT: several processes may find that the rule has fired. Only one of them can
            # move `last_fired_at` on from the value they all saw, and that one fires.
            if not await rule_queries.fired(tx.connection, tenant_id, rule, tx.now):
                return False
            rows = new_deliveries(rule, measured, tx.now, alerts.entropy)
            await delivery_queries.add(tx.connection, tenant_id, rows)
            return True

        # If we die after the commit, the deliveries are stored, and another process sends them.
        if await alerts.store.write(tenant_id, work):
            alerts.metrics.alerts.labels(rule.rule_type).inc()
            _log.info("alert rule `%s` fired: %s", rule.rule_id, rule.rule_type)


def cooling_down(rule: StoredRule, now: int) -> bool:
    """Whether the rule fired too recently to fire again."""
    last = rule.last_fired_at
    return last is not None and now < last + rule.cooldown_minutes * MINUTE


def new_deliveries(
    rule: StoredRule, measured: Measurement, now: int, entropy: Callable[[int], bytes]
) -> list[StoredDelivery]:
    """One delivery for each channel of the rule. A rule without a channel gets one without a
    destination, so that the list of fired alerts shows it."""
    channels: list[tuple[Channel, str | None, str | None]] = [
        ("webhook", rule.webhook_url, rule.webhook_secret),
        ("email", rule.email, None),
    ]
    used = [each for each in channels if each[1]] or [("none", None, None)]
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
        for channel, address, secret in used
    ]
