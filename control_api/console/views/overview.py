"""The console's first page: what goes on, and what needs a person."""

from typing import Any

from control_api.audit.event_operations import list_events
from control_api.audit.proof_operations import list_checkpoints
from control_api.audit.stats_operations import WINDOWS, OverTime, show_stats
from control_api.audit.verification_operations import show_verification
from control_api.console.charts import Series, bar_chart, line_chart
from control_api.console.needs import needs_of
from control_api.console.page import SIGNED_IN, Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.visit import Visit
from control_api.console.words import Cause, causes_of
from control_api.fleet.operations import list_sidecars

DENIALS = 100
"""The most denials that the causes are counted of."""
_TITLES = {"hour": "Last hour", "day": "Last day", "week": "Last week"}


async def show_overview(visit: Visit) -> Html | See:
    """What goes on in the tenant. The superadmin, who belongs to none, sees the tenants."""
    if visit.signed_in.tenant_id is None:
        return See(f"{ROOT}/tenants")
    window = visit.query.get("window", "day")
    if window not in WINDOWS:
        window = "day"
    stats = await visit.call(show_stats, window=window)
    sidecars = await visit.call(list_sidecars, limit="1000")
    checkpoints = await visit.call(list_checkpoints, limit="1")
    verification = await visit.call(show_verification)
    values = {
        "window": window,
        "windows": [(name, _TITLES[name]) for name in WINDOWS],
        "stats": stats,
        **_charts(stats.over_time),
        "causes": await _causes(visit, stats.over_time),
        "sidecars": sidecars,
        "reporting": sum(each.live for each in sidecars.rows),
        "behind": sum(each.live and each.revision < visit.revision for each in sidecars.rows),
        "checkpoint": checkpoints.rows[0] if checkpoints.rows else None,
        "verified": verification,
        "needs": await needs_of(visit, sidecars, verification),
    }
    return Html("overview.html", values)


def _charts(over_time: OverTime) -> dict[str, Any]:
    spans = over_time.spans
    # Of a window longer than a day, the day matters; of a shorter one, the time.
    part = slice(5, 16) if len(spans) * over_time.span_minutes > 24 * 60 else slice(11, 16)
    labels = [each.begin.replace("T", " ")[part] for each in spans]
    minutes = over_time.span_minutes
    allowed = [each.allowed / minutes for each in spans]
    denied = [each.denied / minutes for each in spans]
    rates = [
        100 * each.denied / total if (total := each.allowed + each.denied) else 0.0
        for each in spans
    ]
    return {
        "rate_chart": bar_chart(
            "Decisions a minute", labels, [Series("Allowed", allowed), Series("Denied", denied)]
        ),
        "deny_chart": line_chart("Denied, in percent", labels, [Series("Denied", rates)]),
        "decided": sum(each.allowed + each.denied for each in spans),
        "denied": sum(each.denied for each in spans),
        "rows": [each for each in reversed(spans) if each.allowed or each.denied],
    }


async def _causes(visit: Visit, over_time: OverTime) -> list[Cause]:
    since = over_time.spans[0].begin
    fields = {"decision": "DENY", "from": since}
    found = await visit.call(list_events, limit=str(DENIALS), **fields)
    return causes_of(found.rows, **fields)


PAGES = (Page("GET", ROOT, SIGNED_IN, show_overview),)
