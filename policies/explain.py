"""Explains a decision check by check, and says what would have allowed the call.

    explain(retrieval, facts, decision)      the ten checks, and the nearest miss
    explain_entry(entry, body)               the same for a decision that the log recorded

Pure. Changes no decision, and never runs as part of one (`CONTRACT.md`, Explanations).
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from policies.checks.finding import CheckOutcome, Facts
from policies.checks.order import NAMES
from policies.evaluate import Decision, evaluate
from policies.nearest_miss import steps_to_allow, suggest
from policies.retrieval import Retrieval
from policies.sets.role import Clause
from policies.sets.source_levels import at_effective_level
from policies.trail.recompute.facts import difference, read_facts, read_role
from policies.trail.record import REPORT_PREFIX, response_of

_COMPARED = (CheckOutcome.passed.value, CheckOutcome.failed.value)
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)


class Unexplained(StrEnum):
    """The reason why a recorded decision can't be explained."""

    no_checks = "it was made without the ten checks"
    document_missing = "the policies that decided are not kept any more"
    unreadable = "the facts that the entry records can't be read"
    differs = "the facts that the entry records lead to another decision"


def explain(retrieval: Retrieval, facts: Facts | None, decision: Decision) -> dict[str, Any]:
    """Return `{checks: [{check, outcome, facts}], nearest_miss}` of `CONTRACT.md`, Explanations.
    `facts` is None if the call was refused before any check. If anyone but the request states a
    level of the source, there is also a member `levels`: who states which level, and which one
    holds."""
    if facts is not None:
        retrieval = at_effective_level(retrieval, facts.sources)
    found: dict[str, Any] = {
        "checks": [
            {
                "check": name,
                "outcome": finding.outcome.value,
                # A check that was not reached compared nothing.
                "facts": {}
                if facts is None or finding.outcome is CheckOutcome.not_reached
                else _FACTS[name](retrieval, facts, _deciding(facts, decision)),
            }
            for name, finding in zip(NAMES, decision.findings, strict=True)
        ],
        "nearest_miss": _miss(retrieval, facts, decision),
    }
    if facts is not None and retrieval.levels is not None:
        found["levels"] = retrieval.levels.explained()
    return found


def explain_entry(entry: Mapping[str, Any], body: bytes | None) -> dict[str, Any] | Unexplained:
    """Return the explanation of a recorded decision, as `explain` does, with a `suggestion`
    (`policies.nearest_miss`); or the reason why there is none. `entry` is a `decision` entry. Only
    the facts that it records are used, never those in force today. `body` is the document whose
    digest the entry cites; None if it cites none, or if the document is not kept.

    Unlike `explain`, whose answer agents see, it shows the policy's lists of tasks and sources.
    """
    try:
        if not entry["pub"]["facts"]:
            return Unexplained.no_checks
        recorded = read_facts(entry)
        if recorded.role is not None and body is None:
            return Unexplained.document_missing
        if body is not None and hashlib.sha256(body).hexdigest() != recorded.role:
            return Unexplained.differs
        facts = recorded.facts(None if body is None else read_role(body))
        decision = evaluate(recorded.retrieval, facts)
        response = dict(entry["pub"]["response"])
    except _UNREADABLE:
        return Unexplained.unreadable
    # A source in mode `report` forwards what is denied, and the record says so.
    if recorded.sourced and decision.decision == "DENY":
        response["reason"] = response["reason"].removeprefix(REPORT_PREFIX)
    if difference(response, response_of(decision)):
        return Unexplained.differs
    suggestion = suggest(recorded.retrieval, decision, facts.role)
    found = explain(recorded.retrieval, facts, decision)
    checks = _with_lists(found["checks"], _deciding(facts, decision))
    return {**found, "checks": checks, "suggestion": suggestion}


def _with_lists(checks: list[dict[str, Any]], clause: Clause | None) -> list[dict[str, Any]]:
    """Return the checks, where those of task and source also show the policy's lists that they
    compared."""
    if clause is None:
        return checks
    lists = {
        "task": (("allowed_tasks", clause.allowed_tasks), ("denied_tasks", clause.denied_tasks)),
        "source": (
            ("allowed_sources", clause.allowed_sources),
            ("denied_sources", clause.denied_sources),
        ),
    }
    return [
        {**each, "facts": {**each["facts"], **_sorted(lists[each["check"]])}}
        if each["check"] in lists and each["outcome"] in _COMPARED
        else each
        for each in checks
    ]


def _sorted(lists: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    return {name: sorted(entries) for name, entries in lists}


def _miss(retrieval: Retrieval, facts: Facts | None, decision: Decision) -> dict[str, Any] | None:
    if decision.decision == "ALLOW":
        return None
    if facts is None:
        return {
            "check": None,
            "policy_name": decision.policy_name,
            "change": "no check was reached: no change of policies would have allowed it",
        }
    # For a freeze too: once it is lifted, the call may still fail a check, and the steps say so.
    steps = steps_to_allow(retrieval, facts)
    return {
        "check": steps[0].check,
        "policy_name": steps[0].policy_name,
        "change": "; and ".join(step.words for step in steps),
    }


def _deciding(facts: Facts, decision: Decision) -> Clause | None:
    """Return the clause of the policy that decided; None if no policy did."""
    # None if one of the first six checks decided: its `policy_name` is not a policy's name.
    clauses = () if facts.role is None else facts.role.clauses
    return next((each for each in clauses if each.name == decision.policy_name), None)


def _agent_facts(retrieval: Retrieval, facts: Facts, _clause: Clause | None) -> dict[str, Any]:
    agent = facts.agent
    return {"agent_id": retrieval.agent_id, "status": None if agent is None else agent.status}


def _role_facts(retrieval: Retrieval, facts: Facts, _clause: Clause | None) -> dict[str, Any]:
    agent = facts.agent
    return {
        "agent_role": retrieval.agent_role,
        "agent_permitted_roles": None if agent is None else list(agent.permitted_roles),
        "key_permitted_roles": list(facts.key.permitted_roles),
    }


def _binding_facts(retrieval: Retrieval, facts: Facts, _clause: Clause | None) -> dict[str, Any]:
    return {
        "agent_id": retrieval.agent_id,
        "key_id": facts.key.key_id,
        "key_bound_agent_id": facts.key.bound_agent_id,
        "agent_bound_key_id": None if facts.agent is None else facts.agent.bound_key_id,
    }


def _session_facts(retrieval: Retrieval, facts: Facts, _clause: Clause | None) -> dict[str, Any]:
    session = facts.session
    return {
        "session_id": retrieval.session_id,
        "state": None if session is None else session.state,
        "owner_role": None if session is None else session.agent_role,
        "owner_agent_id": None if session is None else session.agent_id,
    }


def _policy_facts(retrieval: Retrieval, facts: Facts, _clause: Clause | None) -> dict[str, Any]:
    role = facts.role
    return {
        "agent_role": retrieval.agent_role,
        "policies": 0 if role is None else len(role.clauses),
    }


def _clause_facts(field: str) -> Callable[[Retrieval, Facts, Clause | None], dict[str, Any]]:
    """Return a function that makes the `facts` of a check that compares the call's `field` with one
    policy."""

    def facts_of(retrieval: Retrieval, _: Facts, clause: Clause | None) -> dict[str, Any]:
        found = {
            "policy_name": None if clause is None else clause.name,
            field: getattr(retrieval, field),
        }
        if field == "sensitivity_level":
            found["max_sensitivity"] = None if clause is None else clause.max_sensitivity
        return found

    return facts_of


_FACTS: dict[str, Callable[[Retrieval, Facts, Clause | None], dict[str, Any]]] = {
    "agent_id_required": lambda retrieval, facts, _: {
        "required": facts.settings.require_agent_id,
        "agent_id": retrieval.agent_id,
    },
    "registry": _agent_facts,
    "role_restriction": _role_facts,
    "binding": _binding_facts,
    "session": _session_facts,
    "policy_exists": _policy_facts,
    "agent_permitted": _clause_facts("agent_id"),
    "task": _clause_facts("task_type"),
    "source": _clause_facts("source_id"),
    "sensitivity": _clause_facts("sensitivity_level"),
}
