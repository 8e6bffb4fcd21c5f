"""Makes tenants at random, with candidates and without them, and the core's decision on each
request."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from policies.definitions.model import (
    SENSITIVITIES,
    Agent,
    Candidate,
    Policy,
    TenantSettings,
)
from policies.evaluate import evaluate
from policies.sets.policy_set import (
    PolicySet,
    agent_document,
    agent_name,
    candidate_name,
    role_document,
    role_name,
    tenant_document,
)
from policies.trail.recompute.facts import read_facts
from policies.trail.record import response_of
from tests.support.fake_control_api import AGENT, FakeControlApi

ROLES = ("underwriter", "teller", "auditor", "clerk")
SOURCES = ("contracts", "contracts-2024", "rates", "payroll", "handbook")
PATTERNS = (*SOURCES, "contracts*", "*", "pay?oll", "h*")
TASKS = ("review", "audit", "export")
AGENTS = (AGENT, "agt_clerk", "agt_unknown")

Policies = Mapping[str, list[Policy]]
"""A set of policies, by role."""


@dataclass
class TenantWithCandidates:
    """A tenant as it should be published, and the candidates beside it."""

    active: Policies
    candidates: dict[str, Policies] = field(default_factory=dict)
    settings: TenantSettings = field(default_factory=lambda: TenantSettings("default"))
    listed: tuple[Candidate, ...] = ()

    def publish(self, control: FakeControlApi, *, listing: bool = True) -> int:
        """Publish everything in one order, so that equal worlds have equal revisions. Without
        `listing`, the candidates are there but the tenant does not name them."""
        changes: dict[str, bytes | None] = {}
        for role in ROLES:
            changes[role_name(role)] = role_document(self.active.get(role, ()))
            for name, policies in self.candidates.items():
                changes[candidate_name(name, role)] = role_document(policies.get(role, ()))
        changes[agent_name("agt_clerk")] = agent_document(Agent("agt_clerk", "approved", ROLES[2:]))
        revision = control.revision + len(changes) + 1
        self.listed = tuple(Candidate(name, revision) for name in sorted(self.candidates))
        listed = self.listed if listing else ()
        changes["tenant"] = tenant_document(replace(self.settings, candidates=listed))
        return control.publish(changes)


def policies(draw: Random) -> Policies:
    """Return up to three policies for each role but the last."""
    return {
        role: [_policy(draw, f"{role}-{number}", role) for number in range(draw.randint(0, 3))]
        for role in ROLES[:-1]
    }


def changed(draw: Random, before: Policies) -> Policies:
    """Return the same policies, but for one role."""
    role = draw.choice(ROLES)
    return {**before, role: [_policy(draw, f"{role}-new", role)]}


def _policy(draw: Random, name: str, role: str) -> Policy:
    def some(pool: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(draw.sample(pool, draw.randint(0, most)))

    return Policy(
        f"pol_{name}",
        1,
        name,
        role,
        some(PATTERNS, 4),
        some(PATTERNS, 1),
        draw.choice(SENSITIVITIES),
        some(TASKS, 2) if draw.random() < 0.3 else (),
        some(TASKS, 1) if draw.random() < 0.2 else (),
        None,
        some(AGENTS, 2) if draw.random() < 0.2 else (),
    )


def body(draw: Random) -> dict[str, Any]:
    """Return the body of an evaluation."""
    asked: dict[str, Any] = {
        "agent_role": draw.choice(ROLES),
        "user_id": "ann@example.com",
        "source_id": draw.choice(SOURCES),
        "sensitivity_level": draw.choice(SENSITIVITIES),
        # Otherwise it would be a hash of the random salt.
        "context_hash": "0f" * 32,
    }
    if draw.random() < 0.5:
        asked["agent_id"] = draw.choice(AGENTS)
    if draw.random() < 0.5:
        asked["task_type"] = draw.choice(TASKS)
    if draw.random() < 0.1:
        asked["session_id"] = f"s-{draw.randrange(20)}"
    return asked


class Oracle:
    """The core's decision of each candidate, from the documents as they were published."""

    def __init__(self, control: FakeControlApi, world: TenantWithCandidates) -> None:
        self._listed = world.listed
        self._active = PolicySet({n: body for n, (_, body) in control.documents.items()}.get)
        self._roles: dict[str, PolicySet] = {}
        for each in world.listed:
            bodies = {r: control.documents[candidate_name(each.name, r)][1] for r in ROLES}
            # A set in which the candidate's policies are the active ones.
            documents = {role_name(role): body for role, body in bodies.items()}
            self._roles[each.name] = PolicySet(documents.get)

    def response(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return `pub.response` as the active policies decide, by the facts of the record."""
        recorded = read_facts(record)
        role = self._active.role(recorded.retrieval.agent_role)
        return response_of(evaluate(recorded.retrieval, recorded.facts(role)))

    def differing(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return `pub.candidates` as it should be, by the facts of the record."""
        found: list[dict[str, Any]] = []
        if not record["pub"]["facts"]:
            return found
        recorded = read_facts(record)
        for name, revision in self._listed:
            role = self._roles[name].role(recorded.retrieval.agent_role)
            decided = evaluate(recorded.retrieval, recorded.facts(role))
            if decided.decision != record["pub"]["response"]["decision"]:
                item: dict[str, Any] = {
                    "decision": decided.decision,
                    "name": name,
                    "policy_name": decided.policy_name,
                    "revision": revision,
                }
                found.append(item | ({} if decided.check is None else {"check": decided.check}))
        return found
