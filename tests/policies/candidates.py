"""A policy set with candidates, for tests."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from policies.checks.finding import Facts
from policies.definitions.model import Candidate, Policy
from policies.sets.policy_set import (
    PolicySet,
    candidate_name,
    role_document,
    role_name,
    tenant_document,
)

TOMORROW = Candidate("tomorrow", 5)


def with_candidates(
    facts: Facts,
    active: Iterable[Policy],
    candidates: Mapping[Candidate, Iterable[Policy]],
    role: str,
) -> tuple[PolicySet, Facts]:
    """The policy set with these policies of one role, and the facts as gathered from it."""
    settings = replace(facts.settings, candidates=tuple(candidates))
    bodies = {"tenant": tenant_document(settings), role_name(role): role_document(active)}
    for candidate, policies in candidates.items():
        bodies[candidate_name(candidate.name, role)] = role_document(policies)
    policy_set = PolicySet(bodies.get)
    policy_set.revision = facts.revision
    return policy_set, facts._replace(settings=policy_set.settings(), role=policy_set.role(role))
