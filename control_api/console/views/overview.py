"""The console's first page: the tenant's activity, and the matters that need a person (needs), the
worst first. Each need links to the page where it can be settled. The page asks each operation that
this visitor may call for a first page of rows only, so it costs the same however many there are."""

from typing import Any, NamedTuple

from control_api.alerts.operations import list_fired_alerts
from control_api.audit.event_operations import WINDOWS, OverTime, list_events, show_stats
from control_api.audit.proof_models import Verification
from control_api.audit.proof_operations import list_checkpoints
from control_api.audit.verification_operations import show_verification
from control_api.console.charts import Series, bar_chart, line_chart
from control_api.console.page import ROOT, SIGNED_IN, HtmlPage, PageRedirect, Visit, address, get
from control_api.console.words import Cause, causes_of, number_of
from control_api.edge.answers import Page
from control_api.fleet.models import SidecarResponse
from control_api.fleet.operations import list_sidecars
from control_api.policy.candidate_models import CandidateListed
from control_api.policy.candidate_operations import list_candidates
from control_api.policy.operations import show_policy_files
from control_api.registry.agent_operations import list_agents
from control_api.registry.key_operations import list_keys
from control_api.tenants.operations import show_freeze
from policies.ground.canonical import micros, rfc3339

DENIALS = 100
"""The most denials whose causes are counted."""
_TITLES = {"hour": "Last hour", "day": "Last day", "week": "Last week"}
DAY = 86_400_000_000  # microseconds
SOON = 14 * DAY
"""The time (microseconds) before a key expires from which on the page asks to replace it."""
LATE_MS = 10_000
"""Milliseconds after which a record that a sidecar has not shipped yet counts as late."""
STALE_MS = 25_000
"""Milliseconds after which a sidecar's policy set counts as stale. Without Redis a sidecar asks
anew every 10 seconds at most, and its set's age counts from when it asked: so up to 20 seconds are
usual."""
COMPARED = 100
"""The number of decisions after which a candidate is listed as ready to be promoted or discarded,
because its effect is known well enough."""
_TONES = ("bad", "warn", "info")


async def show_overview(visit: Visit) -> HtmlPage | PageRedirect:
    """Show the tenant's activity and needs. The superadmin, who belongs to no tenant, is led to the
    list of tenants."""
    if visit.signed_in.tenant_id is None:
        return PageRedirect(f"{ROOT}/tenants")
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
    return HtmlPage("overview.html", values)


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


class Need(NamedTuple):
    """A matter that needs a person's attention. `tone` is one of `bad`, `warn` and `info`."""

    text: str
    href: str
    tone: str


async def needs_of(
    visit: Visit, sidecars: Page[SidecarResponse], verification: Verification
) -> list[Need]:
    """Return all needs, the worst first. `sidecars` and `verification` are those that the page has
    read already."""
    found = [
        *await _freeze(visit),
        *_log(verification),
        *await _files(visit),
        *_fleet(sidecars, visit.revision, visit.console.clock.now()),
        *await _alerts(visit),
        *await _agents(visit),
        *await _keys(visit),
        *await _candidates(visit),
    ]
    return sorted(found, key=lambda need: _TONES.index(need.tone))


async def _freeze(visit: Visit) -> list[Need]:
    freeze = await visit.call(show_freeze)
    if not freeze.frozen:
        return []
    text = f"A freeze is in force, and every evaluation is denied: {freeze.reason}"
    return [Need(text, address("/alerts/freeze"), "bad")]


def _log(verification: Verification) -> list[Need]:
    if verification.reason is None:
        return []
    text = f"The audit trail does not verify: {verification.reason}"
    return [Need(text, address("/audit"), "bad")]


async def _files(visit: Visit) -> list[Need]:
    files = await visit.call(show_policy_files)
    if files.refused_at is None:
        return []
    more = f", and {number_of(len(files.faults) - 1, 'more fault')}" if files.faults[1:] else ""
    text = f"The policy files are refused, the policies stay as they were: {files.faults[0]}{more}"
    return [Need(text, address("/policies"), "bad")]


def _fleet(sidecars: Page[SidecarResponse], revision: int, now: int) -> list[Need]:
    listed = sidecars.rows
    live = [each for each in listed if each.live]
    # A pod that was replaced stays listed for a week, and needs a person for a day.
    silent = [e for e in listed if not e.live and micros(e.last_seen) > now - DAY]
    cases = (
        ("bad", "whose checkpoint the log contradicts", [e for e in listed if e.forked]),
        ("bad", "that deny every request", [e for e in live if e.refusing]),
        ("bad", "whose id another process uses", [e for e in live if e.duplicate]),
        ("warn", "silent for more than 15 seconds", silent),
        ("warn", "with older policies", [e for e in live if e.revision < revision]),
        ("warn", "with stale policies", [e for e in live if (e.policy_set_age_ms or 0) > STALE_MS]),
        (
            "warn",
            "that ship records late",
            [e for e in live if (e.oldest_unshipped_ms or 0) > LATE_MS],
        ),
    )
    more = "" if sidecars.next is None else "+"
    return [
        Need(f"Sidecars {what}: {len(some):,}{more}", address("/fleet"), tone)
        for tone, what, some in cases
        if some
    ]


async def _alerts(visit: Visit) -> list[Need]:
    fired = await visit.call(list_fired_alerts, limit="100")
    now = visit.console.clock.now()
    lately = [each for each in fired.rows if micros(each.fired_at) > now - DAY]
    failed = [each for each in lately if each.status == "failed"]
    needs = []
    if lately:
        text = f"{number_of(len(lately), 'alert')} fired within a day"
        needs.append(Need(text, address("/alerts"), "bad"))
    if failed:
        text = f"{number_of(len(failed), 'alert')} reached its receiver in no attempt"
        needs.append(Need(text, address("/alerts"), "bad"))
    return needs


async def _agents(visit: Visit) -> list[Need]:
    needs = []
    for status, what in (("pending_approval", "approval"), ("draft", "a role and approval")):
        waiting = await visit.call(list_agents, status=status, limit="100")
        if waiting.rows:
            number = number_of(len(waiting.rows), "agent", more=waiting.next is not None)
            text = f"{number} {'waits' if len(waiting.rows) == 1 else 'wait'} for {what}"
            needs.append(Need(text, address("/agents", status=status), "warn"))
    return needs


async def _keys(visit: Visit) -> list[Need]:
    now = visit.console.clock.now()
    ending = await visit.call(list_keys, expires_before=rfc3339(now + SOON), limit="100")
    if not ending.rows:
        return []
    number = number_of(len(ending.rows), "key", more=ending.next is not None)
    return [Need(f"{number} to replace within 14 days", address("/keys"), "warn")]


async def _candidates(visit: Visit) -> list[Need]:
    listed = await visit.call(list_candidates)
    return [
        Need(_ready(each), address("/policies/candidate", id=each.name), "info")
        for each in listed.rows
        if each.decided >= COMPARED
    ]


def _ready(candidate: CandidateListed) -> str:
    return (
        f"The candidate “{candidate.name}” is ready to be promoted or discarded: of "
        f"{number_of(candidate.decided, 'decision')} it would newly deny "
        f"{candidate.newly_denied:,} and newly allow {candidate.newly_allowed:,}"
    )


PAGES = (get("", SIGNED_IN, show_overview),)
