"""What is known of a decision, in words for people: its checks, what was recorded after it, and
what a verification found at its entry. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from control_api.responses.audit import AuditEvent, LineageAction
from control_api.responses.checkpoints import Verification
from control_api.responses.evaluations import CheckShown
from policies.trail.findings import DERIVED, SENTENCES, Reason

_CHECKS = {
    "agent_id_required": "An agent is named, if the tenant requires one",
    "registry": "The agent is registered and approved",
    "role_restriction": "The agent and the key may claim this role",
    "binding": "The key may be used by this agent",
    "session": "The session is active, and its owner's",
    "policy_exists": "The role has a policy",
    "agent_permitted": "The policy applies to this agent",
    "task": "The policy permits this task",
    "source": "The policy allows this source",
    "sensitivity": "The level is not above the policy's",
}
_OUTCOMES = {
    "passed": ("passed", "good"),
    "failed": ("failed", "bad"),
    "skipped": ("not needed", "plain"),
    "not_reached": ("not reached", "plain"),
}
_RELEASED = {
    "sha256": "SHA-256 of the response",
    "bytes": "bytes",
    "withheld": "items withheld",
    "status": "status",
    "duration_ms": "milliseconds",
    "retries": "retries",
}
"""What a sidecar records of what it released, as the action `retrieval`."""
_CLOSED = ("allowed_sources", "denied_sources", "denied_tasks")
"""Lists that name nothing when they are empty. Any other empty list allows everything."""
_MOST_LISTED = 50


class Rung(NamedTuple):
    """One check of the ladder: its outcome, with a tone, and what was compared with what."""

    title: str
    outcome: str
    tone: str
    facts: list[tuple[str, str]]


class Fault(NamedTuple):
    """What the service's own verification found at an entry. `of_log` is false if only deriving the
    decision again found it: the log around it may verify as a whole."""

    sentence: str
    reason: str
    of_log: bool


def ladder(checks: Iterable[CheckShown]) -> list[Rung]:
    """The ten checks, in their order."""
    return [
        Rung(
            _CHECKS.get(each.check, each.check),
            *_OUTCOMES[each.outcome],
            [(name.replace("_", " "), _fact(name, value)) for name, value in each.facts.items()],
        )
        for each in checks
    ]


def detail(action: LineageAction) -> list[tuple[str, str]]:
    """The members of a recorded action. An agent chose those of its own actions."""
    names = _RELEASED if action.action_type == "retrieval" else {}
    told = action.detail or {}
    ordered = sorted(told, key=lambda name: [*names, name].index(name))
    return [(names.get(name, name), _value(told[name])) for name in ordered]


def fault(verification: Verification, event: AuditEvent) -> Fault | None:
    """What the verification found last, if it is at this event's entry."""
    if verification.broken_at != event.event_id or verification.reason is None:
        return None
    code = Reason(verification.reason.partition(": ")[0])
    return Fault(SENTENCES[code], verification.reason, code not in DERIVED)


def _fact(name: str, value: object) -> str:
    if not isinstance(value, list):
        return _value(value)
    shown = ", ".join(map(str, value[:_MOST_LISTED])) or ("none" if name in _CLOSED else "any")
    more = len(value) - _MOST_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        return orjson.dumps(value).decode()
    return str(value)
