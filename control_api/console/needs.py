"""What needs a person, over all areas: each a sentence and the page where it is settled, the worst
first. It asks each operation that this visitor may call for the first page of what matters, so it
costs the same however much there is. Knows no template."""

from typing import NamedTuple

from control_api.alerts.operations import list_fired_alerts
from control_api.audit.proof_models import Verification
from control_api.console.visit import Visit, address
from control_api.edge.answers import Page
from control_api.fleet.models import SidecarResponse
from control_api.policy.candidate_models import CandidateListed
from control_api.policy.candidate_operations import list_candidates
from control_api.policy.operations import show_policy_files
from control_api.registry.agent_operations import list_agents
from control_api.registry.key_operations import list_keys
from control_api.tenants.operations import show_freeze
from policies.ground.canonical import micros, rfc3339

DAY = 86_400_000_000  # microseconds
SOON = 14 * DAY
"""How long before a key expires a person should replace it."""
LATE_MS = 10_000
"""How old an unshipped record may be."""
STALE_MS = 25_000
"""How old a policy set may be. Without Redis a sidecar asks anew every 10 seconds at most, and its
age counts from when it asked: so up to 20 are usual."""
COMPARED = 100
"""From so many decisions on, a candidate has shown what it would change."""
_TONES = ("bad", "warn", "info")


class Need(NamedTuple):
    """Something that needs a person. `tone` is one of `bad`, `warn` and `info`."""

    text: str
    href: str
    tone: str


async def needs_of(
    visit: Visit, sidecars: Page[SidecarResponse], verification: Verification
) -> list[Need]:
    """All of it. `sidecars` and `verification` are what the page has read."""
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
    more = f", and {_number(len(files.faults) - 1, 'more fault')}" if files.faults[1:] else ""
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
        ("warn", "that ship records late", [e for e in live if _is_late(e)]),
    )
    more = "" if sidecars.next is None else "+"
    return [
        Need(f"Sidecars {what}: {len(some):,}{more}", address("/fleet"), tone)
        for tone, what, some in cases
        if some
    ]


def _is_late(sidecar: SidecarResponse) -> bool:
    return (sidecar.oldest_unshipped_ms or 0) > LATE_MS


async def _alerts(visit: Visit) -> list[Need]:
    fired = await visit.call(list_fired_alerts, limit="100")
    now = visit.console.clock.now()
    lately = [each for each in fired.rows if micros(each.fired_at) > now - DAY]
    failed = [each for each in lately if each.status == "failed"]
    needs = []
    if lately:
        text = f"{_number(len(lately), 'alert')} fired within a day"
        needs.append(Need(text, address("/alerts"), "bad"))
    if failed:
        text = f"{_number(len(failed), 'alert')} reached its receiver in no attempt"
        needs.append(Need(text, address("/alerts"), "bad"))
    return needs


async def _agents(visit: Visit) -> list[Need]:
    needs = []
    for status, what in (("pending_approval", "approval"), ("draft", "a role and approval")):
        waiting = await visit.call(list_agents, status=status, limit="100")
        if waiting.rows:
            number = _number(len(waiting.rows), "agent", more=waiting.next is not None)
            text = f"{number} {'waits' if len(waiting.rows) == 1 else 'wait'} for {what}"
            needs.append(Need(text, address("/agents", status=status), "warn"))
    return needs


async def _keys(visit: Visit) -> list[Need]:
    now = visit.console.clock.now()
    ending = await visit.call(list_keys, expires_before=rfc3339(now + SOON), limit="100")
    if not ending.rows:
        return []
    number = _number(len(ending.rows), "key", more=ending.next is not None)
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
        f"{_number(candidate.decided, 'decision')} it would newly deny {candidate.newly_denied:,} "
        f"and newly allow {candidate.newly_allowed:,}"
    )


def _number(count: int, what: str, *, more: bool = False) -> str:
    """`1 key`, `2,000 keys`; `100+ keys` if there are more."""
    return f"1 {what}" if count == 1 and not more else f"{count:,}{'+' if more else ''} {what}s"
