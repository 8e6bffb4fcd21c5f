"""Puts into words for people the results of the access analysis, the causes of denials, and the
checks and actions of a decision."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from control_api.audit.event_models import AuditEvent, ExplainedCheck, LineageAction
from control_api.audit.proof_models import Verification
from control_api.console.page import address
from policies.analysis.regions import EVERYTHING
from policies.analysis.rows import ABSENT
from policies.definitions.wildcard import matcher
from policies.trail.findings import DERIVED, SENTENCES, Reason

SHOWN_ROWS = 20
"""The most names in a sentence, before it says how many more there are."""


def number_of(count: int, what: str, *, more: bool = False) -> str:
    """Return a number of things in words: `1 key`, `2,000 keys`; `100+ keys` if there are more."""
    return f"1 {what}" if count == 1 and not more else f"{count:,}{'+' if more else ''} {what}s"


class AccessInWords(NamedTuple):
    """A row of the access analysis in words: the role, the sources that it may read and up to which
    level, and the agents, tasks and policies that this holds for."""

    role: str
    sources: str
    level: str
    agents: str
    tasks: str
    registered: list[str]
    more_registered: int
    policies: list[str]


def in_words(row: Mapping[str, Any]) -> AccessInWords:
    """Put a row of `GET /v1/policies/access` into words."""
    ids = row["agent_ids"]
    return AccessInWords(
        row["agent_role"],
        names(row["sources"], "every source"),
        row["levels"][-1],
        _callers(row["agents"], "every agent"),
        _callers(row["tasks"], "every task"),
        ids[:SHOWN_ROWS],
        max(0, len(ids) - SHOWN_ROWS),
        row["policies"],
    )


def _callers(items: Sequence[Any], everything: str) -> str:
    """Return the names of agents or tasks in words, and whether they include calls that name
    none."""
    named = [each for each in items if each != ABSENT]
    words = [names(named, everything)] if named else []
    if len(named) < len(items):
        words.append("calls without one")
    return ", and ".join(words)


def names(items: Sequence[Any], everything: str) -> str:
    """Join patterns and names to a text, at most `SHOWN_ROWS` of them; `everything` stands for the
    pattern that matches all."""
    words = [item_in_words(each, everything) for each in items[:SHOWN_ROWS]]
    more = len(items) - len(words)
    return ", ".join(words) + (f" and {more:,} more" if more else "")


def item_in_words(item: Any, everything: str = EVERYTHING) -> str:
    """Return an item of an access row in words: a pattern, a name, or a pattern with exceptions."""
    if isinstance(item, str):
        return everything if item == EVERYTHING else item
    if "name" in item:
        return str(item["name"])
    some = [item["any"]] if isinstance(item["any"], str) else item["any"]
    besides = " and ".join(item_in_words(each) for each in item["except"])
    return f"{names(some, everything)} except {besides}"


def covers(items: Iterable[Any], name: str) -> bool:
    """Return whether one of an access row's items matches this name."""
    return any(_matches(item, name) for item in items)


def _matches(item: Any, name: str) -> bool:
    if isinstance(item, str):
        return item != ABSENT and matcher((item,))(name)
    if "name" in item:
        return bool(item["name"] == name)
    some = [item["any"]] if isinstance(item["any"], str) else item["any"]
    return covers(some, name) and not covers(item["except"], name)


SHOWN_CAUSES = 8


class Cause(NamedTuple):
    """A cause of denials, with their number and the address of the page that lists them."""

    check: str | None
    policy_name: str
    source_id: str
    number: int
    href: str


def causes_of(denials: Iterable[AuditEvent], **fields: str) -> list[Cause]:
    """Return the most frequent causes of these denials. `fields` are those of the search that found
    them."""
    counted = Counter((each.check, each.policy_name, each.source_id) for each in denials)
    search = {"decision": "DENY", **fields}
    return [
        Cause(
            check,
            policy_name,
            source_id,
            number,
            address("/decisions", **{**search, "policy_name": policy_name, "source_id": source_id}),
        )
        for (check, policy_name, source_id), number in counted.most_common(SHOWN_CAUSES)
    ]


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
"""The names, for people, of the values that a sidecar records in the action `retrieval` about the
response that it released."""
_CLOSED = ("allowed_sources", "denied_sources", "denied_tasks")
"""The policy fields in which an empty list names nothing, and is shown as `none`. An empty list in
any other field allows everything, and is shown as `any`."""
_MOST_LISTED = 50


class CheckInWords(NamedTuple):
    """One check of a decision as the page shows it: its outcome, with a tone, and the facts that
    were compared."""

    title: str
    outcome: str
    tone: str
    facts: list[tuple[str, str]]


class VerificationFault(NamedTuple):
    """A finding of the service's own verification at an entry. `of_log` is False if only deriving
    the decision again found it: the log around it may verify as a whole."""

    sentence: str
    reason: str
    of_log: bool


def checks_in_words(checks: Iterable[ExplainedCheck]) -> list[CheckInWords]:
    """Return the ten checks in words, in their order."""
    return [
        CheckInWords(
            _CHECKS.get(each.check, each.check),
            *_OUTCOMES[each.outcome],
            [(name.replace("_", " "), _fact(name, value)) for name, value in each.facts.items()],
        )
        for each in checks
    ]


def detail(action: LineageAction) -> list[tuple[str, str]]:
    """Return the members of a recorded action with their values in words. For an agent's own
    actions, the agent chose the members."""
    names = _RELEASED if action.action_type == "retrieval" else {}
    members = action.detail or {}
    ordered = sorted(members, key=lambda name: [*names, name].index(name))
    return [(names.get(name, name), _value(members[name])) for name in ordered]


def verification_fault(verification: Verification, event: AuditEvent) -> VerificationFault | None:
    """Return the latest finding of the verification, if it is at this event's entry; otherwise
    None."""
    if verification.broken_at != event.event_id or verification.reason is None:
        return None
    code = Reason(verification.reason.partition(": ")[0])
    return VerificationFault(SENTENCES[code], verification.reason, code not in DERIVED)


def _fact(name: str, value: object) -> str:
    if not isinstance(value, list):
        return _value(value)
    text = ", ".join(map(str, value[:_MOST_LISTED])) or ("none" if name in _CLOSED else "any")
    more = len(value) - _MOST_LISTED
    return f"{text} and {more:,} more" if more > 0 else text


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        return orjson.dumps(value).decode()
    return str(value)
