"""Measures each type of rule (`CONTRACT.md`, Alerts) from the counters that are kept with the log.

Knows nothing of firing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.alerts.rule_queries import StoredRule
from control_api.store.counters import queries as tallies
from control_api.store.counters.dimensions import MINUTE, Dimension
from control_api.store.counters.queries import CountedValue
from control_api.store.queries import violations
from policies.ground.canonical import rfc3339

BY_SECOND = 60
"""Windows of up to this many minutes are summed by the second, longer ones by the minute."""
AHEAD = 5 * MINUTE
"""How far a sidecar's clock may be ahead of ours without its events being left out."""
MAX_PAIRS = 20
"""The maximum number of pairs of role and source that a message lists."""


class Measurement(NamedTuple):
    """The measured value, whether it reaches the threshold, and the detail for the receiver."""

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
        found = await tallies.new_accesses(connection, tenant_id, since, until, MAX_PAIRS)
        value, reached, more = _new_accesses(rule, *found)
    else:
        by_second, by_minute = _DIMENSIONS[rule.rule_type]
        dimension = by_second if rule.window_minutes <= BY_SECOND else by_minute
        counted = await tallies.window(connection, tenant_id, dimension, since, until)
        if rule.rule_type == "isolation_violation":
            refused = await violations.counted(connection, tenant_id, since, until)
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
    """Measures the rule types that compare counts of decisions and of denials."""
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


def _new_accesses(rule: StoredRule, count: int, pairs: Sequence[tuple[str, str]]) -> Measurement:
    accesses = [{"agent_role": role, "source_id": source} for role, source in pairs]
    return Measurement(count, count >= rule.threshold, {"accesses": accesses})
