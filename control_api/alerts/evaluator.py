"""Measures alert rules in a loop, from the counters that are kept with the log (`CONTRACT.md`,
Alerts), and fires the rules that reach their threshold. The evaluation of a retrieval never waits
for this.

    find the logs that grew > measure their rules > fire: one transaction with the deliveries
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.alerts import queries
from control_api.alerts.channels import Alerts, poll
from control_api.alerts.models import target_of
from control_api.alerts.queries import Channel, StoredDelivery, StoredRule
from control_api.store.counters import queries as tallies
from control_api.store.counters.counters import MINUTE, Dimension
from control_api.store.counters.queries import CountedValue
from control_api.store.queries import sidecar_rows
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.ground.ids import prefixed
from policies.ground.process.outage_logger import OutageLogger

BY_SECOND = 60
"""The length of a window, in minutes, up to which counts per second are summed. Longer windows sum
counts per minute."""
AHEAD = 5 * MINUTE
"""The microseconds by which a sidecar's clock may be ahead of ours while its events still count."""
MAX_PAIRS = 20
"""The most pairs of role and source that an alert lists."""


class Measurement(NamedTuple):
    """The result of measuring a rule: the value, whether it reaches the threshold, and the detail
    for the alert's receiver."""

    value: float
    reached: bool
    detail: dict[str, Any]


async def measure(
    connection: AsyncConnection, tenant_id: str, rule: StoredRule, now: int
) -> Measurement:
    """Measure the rule over its window up to `now` (microseconds)."""
    # In event time: a sidecar that was cut off delivers late, but its events count when they
    # happened.
    since, until = now - rule.window_minutes * MINUTE, now + AHEAD
    if rule.rule_type == "new_source_access":
        count, pairs = await tallies.new_accesses(connection, tenant_id, since, until, MAX_PAIRS)
        accesses = [{"agent_role": role, "source_id": source} for role, source in pairs]
        value, reached, more = float(count), count >= rule.threshold, {"accesses": accesses}
    else:
        by_second, by_minute = _DIMENSIONS[rule.rule_type]
        dimension = by_second if rule.window_minutes <= BY_SECOND else by_minute
        counted = await tallies.window(connection, tenant_id, dimension, since, until)
        if rule.rule_type == "isolation_violation":
            refused = await sidecar_rows.count_violations(connection, tenant_id, since, until)
            counted = counted._replace(denied=counted.denied + refused)
        value, reached, more = _decisions(rule, counted)
    detail = {
        "measured": value,
        "threshold": rule.threshold,
        "window_minutes": rule.window_minutes,
        "window_from": rfc3339(since),
        "window_to": rfc3339(now),
        **more,
    }
    return Measurement(value, reached, detail)


_DIMENSIONS = {
    "denial_spike": (Dimension.second, Dimension.minute),
    "high_deny_rate": (Dimension.second, Dimension.minute),
    "isolation_violation": (Dimension.mismatch_second, Dimension.mismatch_minute),
    "doubtful_time": (Dimension.doubtful_second, Dimension.doubtful_minute),
}


def _decisions(rule: StoredRule, counted: CountedValue) -> Measurement:
    """Measure a rule whose type compares counts of decisions or denials."""
    total, denied = counted.total, counted.denied
    if rule.rule_type == "isolation_violation":
        # This dimension counts only denials by that check, so there is no total to show.
        return Measurement(denied, denied >= rule.threshold, {})
    if rule.rule_type == "doubtful_time":
        return Measurement(total, total >= rule.threshold, {})
    events = {"events": total, "denied": denied}
    if rule.rule_type == "denial_spike":
        return Measurement(denied, denied >= rule.threshold, events)
    # Compared as integers, so that rounding can't decide whether a rule fires.
    enough = total >= max(rule.min_events, 1)
    reached = enough and denied * 100 >= rule.threshold * total
    percent = round(denied * 100 / total, 2) if total else 0.0
    return Measurement(percent, reached, {**events, "min_events": rule.min_events})


POLL_SECONDS = 0.5
# Every this many rounds, logs that did not grow are measured too: the cooldown of a rule may have
# ended while its window still reaches the threshold.
MEASURE_ALL_EVERY = 20
_log = logging.getLogger("sluice.alerts")


class AlertEvaluator:
    """Measures and fires the rules of all tenants. `_measured` holds each log's size when it was
    last measured."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        self._measured: dict[str, int] = {}
        self._rounds = 0
        self._outage = OutageLogger(
            _log, "alert rules can't be measured", "alert rules are measured again"
        )

    async def run(self) -> None:
        await poll(POLL_SECONDS, self.measure_grown, self._outage)

    async def measure_grown(self) -> None:
        """Measure the rules of every log that grew."""
        async with self._alerts.store.reading_all_tenants() as connection:
            sizes = await queries.watched(connection)
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
            for rule in await queries.enabled(connection, tenant_id):
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
            if not await queries.fired(tx.connection, tenant_id, rule, tx.now):
                return False
            rows = new_deliveries(rule, measured, tx.now, alerts.entropy)
            await queries.add_deliveries(tx.connection, tenant_id, rows)
            return True

        # If we die after the commit, the deliveries are stored, and another process sends them.
        if await alerts.store.write(tenant_id, work):
            alerts.metrics.alerts.labels(rule.rule_type).inc()
            _log.info("alert rule `%s` fired: %s", rule.rule_id, rule.rule_type)


def cooling_down(rule: StoredRule, now: int) -> bool:
    """Return whether the rule fired so recently that it may not fire again yet."""
    last = rule.last_fired_at
    return last is not None and now < last + rule.cooldown_minutes * MINUTE


def new_deliveries(
    rule: StoredRule, measured: Measurement, now: int, entropy: Callable[[int], bytes]
) -> list[StoredDelivery]:
    """Return one delivery for each channel of the rule. A rule without a channel gets a delivery
    without a destination, so that the list of fired alerts shows it."""
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
