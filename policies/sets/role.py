"""The active policies of one role, compiled for decisions. Knows nothing of identity or sessions.

A role is compiled once, when a decision first needs its document. The cost of a decision then
depends on the policies of its own role, not on the tenant's others.
"""

import hashlib
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Any

from policies.definitions.model import RANK, Policy, Sensitivity
from policies.definitions.wildcard import Matcher, literal_prefixes, matcher
from policies.ground.canonical import encode


@dataclass(frozen=True, slots=True)
class Clause:
    """One policy, compiled for decisions. `admits` matches the agents to which it applies, None if
    it applies to every agent. `allows` and `denies` match names of sources by the policy's lists;
    the prefixes are the literal beginnings of the patterns in these lists, sorted
    (`policies.definitions.wildcard`)."""

    policy_id: str
    version: int
    name: str
    admits: Matcher | None
    allows: Matcher
    denies: Matcher
    allowed_sources: tuple[str, ...]
    denied_sources: tuple[str, ...]
    allowed_prefixes: tuple[str, ...]
    denied_prefixes: tuple[str, ...]
    allowed_tasks: Set[str]
    denied_tasks: Set[str]
    max_sensitivity: Sensitivity
    rank: int


@dataclass(frozen=True, slots=True)
class Role:
    """All policies of a role as clauses, ordered by name, with the limits that they set together.

    `digest` is the SHA-256, in hex, of the document from which it was compiled. A decision cites
    it, so that the decision can be derived again. `answers` caches the decisions of these policies
    on recent requests (`policies.candidates`); it is never outdated, since a changed document makes
    another `Role`. `session_ttl_minutes` is the smallest of the policies' limits, or None if no
    policy sets one. `denies` and `denied_tasks` hold everything that any clause denies.
    """

    name: str
    clauses: tuple[Clause, ...]
    denies: Matcher
    denied_tasks: Set[str]
    session_ttl_minutes: int | None
    digest: str
    answers: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)


def compile_role(name: str, policies: Iterable[Policy], digest: str = "") -> Role:
    """Compile the policies of the role `name`, of which there must be at least one. `digest` is
    that of their document, computed if it is empty."""
    # Sort by name, like the document: a decision names the first of several policies that allow.
    ordered = sorted(policies, key=lambda policy: policy.name)
    limits = [p.session_ttl_minutes for p in ordered if p.session_ttl_minutes is not None]
    # Without a document (`policies.nearest_miss`), the digest is that of the one it would have.
    return Role(
        name=name,
        clauses=tuple(map(compile_clause, ordered)),
        denies=matcher(source for policy in ordered for source in policy.denied_sources),
        denied_tasks=frozenset(task for policy in ordered for task in policy.denied_tasks),
        session_ttl_minutes=min(limits, default=None),
        digest=digest or hashlib.sha256(encode([p.to_wire() for p in ordered])).hexdigest(),
    )


def compile_clause(policy: Policy) -> Clause:
    return Clause(
        policy_id=policy.policy_id,
        version=policy.version,
        name=policy.name,
        # An empty list permits every agent, unlike an empty `allowed_sources`.
        admits=matcher(policy.permitted_agent_ids) if policy.permitted_agent_ids else None,
        allows=matcher(policy.allowed_sources),
        denies=matcher(policy.denied_sources),
        allowed_sources=policy.allowed_sources,
        denied_sources=policy.denied_sources,
        allowed_prefixes=literal_prefixes(policy.allowed_sources),
        denied_prefixes=literal_prefixes(policy.denied_sources),
        allowed_tasks=frozenset(policy.allowed_tasks),
        denied_tasks=frozenset(policy.denied_tasks),
        max_sensitivity=policy.max_sensitivity,
        rank=RANK[policy.max_sensitivity],
    )
