"""Measures each type of rule (contract, section 4) from the counters that are kept with the log.

Windows are of event time: a sidecar that was cut off delivers late, and its events count when they
happened. Knows nothing of firing.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters import queries as tallies
from control_api.store.counters.dimensions import MINUTE, Dimension
from control_api.store.counters.queries import CountedValue
from control_api.store.queries.alerts import StoredRule
from policies.ground.canonical import rfc3339

BY_SECOND = 60
"""Windows of up to this many minutes are summed by the second, longer ones by the minute."""
AHEAD = 5 * MINUTE
"""How far a sidecar's clock may be ahead of ours without its events being left out."""
MAX_PAIRS = 20
"""Pairs of role and source that a message lists."""


class Measurement(NamedTuple):
    """The measured value, whether it reaches the threshold, and the detail for the receiver."""

    value: float
    reached: bool
    detail: dict[str, Any]


async def measure(
    connection: AsyncConnection, tenant_id: str, rule: StoredRule, now: int
) -> Measurement:
    """Measure the rule over its window up to `now` (microseconds)."""
    value, reached, more = await _TYPES[rule.rule_type](connection, tenant_id, rule, now)
    return Measurement(
        value,
        reached,
        {
            "measured": value,
            "threshold": rule.threshold,
            "window_minutes": rule.window_minutes,
            "window_from": rfc3339(now - rule.window_minutes * MINUTE),
            "window_to": rfc3339(now),
            **more,
        },
    )


_Found = tuple[float, bool, dict[str, Any]]


async def _denial_spike(
    connection: AsyncConnection, tenant_id: str, rule: StoredRule, now: int
) -> _Found:
    counted = await _window(connection, tenant_id, rule, now, Dimension.second, Dimension.minute)
    return counted.denied, counted.denied >= rule.threshold, _events(counted)


async def _high_deny_rate(
    connection: AsyncConnection, tenant_id: str, rule: StoredRule, now: int
) -> _Found:
    counted = await _window(connection, tenant_id, rule, now, Dimension.second, Dimension.minute)
    # Compared as integers, so that rounding can't decide whether a rule fires.
    enough = counted.total >= max(rule.min_events, 1)
    reached = enough and counted.denied * 100 >= rule.threshold * counted.total
    percent = round(counted.denied * 100 / counted.total, 2) if counted.total else 0.0
    return percent, reached, {**_events(counted), "min_events": rule.min_events}


async def _isolation_violation(
    connection: AsyncConnection, tenant_id: str, rule: StoredRule, now: int
) -> _Found:
    facets = (Dimension.mismatch_second, Dimension.mismatch_minute)
    counted = await _window(connection, tenant_id, rule, now, *facets)
    return counted.denied, counted.denied >= rule.threshold, {}


async def _new_source_access(
    connection: AsyncConnection, tenant_id: str, rule: StoredRule, now: int
) -> _Found:
    since = now - rule.window_minutes * MINUTE
    count, pairs = await tallies.new_accesses(connection, tenant_id, since, now + AHEAD, MAX_PAIRS)
    accesses = [{"agent_role": role, "source_id": source} for role, source in pairs]
    return count, count >= rule.threshold, {"accesses": accesses}


async def _window(
    connection: AsyncConnection,
    tenant_id: str,
    rule: StoredRule,
    now: int,
    seconds: Dimension,
    minutes: Dimension,
) -> CountedValue:
    facet = seconds if rule.window_minutes <= BY_SECOND else minutes
    since = now - rule.window_minutes * MINUTE
    return await tallies.window(connection, tenant_id, facet, since, now + AHEAD)


def _events(counted: CountedValue) -> dict[str, Any]:
    return {"events": counted.total, "denied": counted.denied}


_TYPES: dict[str, Callable[[AsyncConnection, str, StoredRule, int], Awaitable[_Found]]] = {
    "denial_spike": _denial_spike,
    "high_deny_rate": _high_deny_rate,
    "isolation_violation": _isolation_violation,
    "new_source_access": _new_source_access,
}
TYPES = tuple(_TYPES)
