"""Finds the request that breaks a guardrail (`policies/definitions/guardrail.py`).

A guardrail that does not hold has a counterexample: a request that the core decides the wrong way.
Identity and sessions (checks 1 to 5) are not part of it. Pure, and reads no file. For each
guardrail:

    find the roles it is about > the parts of their policies about its requests > their classes

What a role is allowed depends on that role's policies alone. So a guardrail that holds keeps
holding for every role whose policies stay as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from policies.analysis.access import ABSENT_AGENT, Access, AccessQuery, example
from policies.analysis.names import MAX_STEPS
from policies.analysis.patterns import overlaps_with
from policies.definitions.guardrail import ABSENT, Guardrail
from policies.definitions.model import RANK, SENSITIVITIES, Policy
from policies.definitions.wildcard import matcher
from policies.retrieval import Retrieval


class GuardedRoles:
    """The policies of some roles, on which guardrails are tried. `every` says that these are all
    roles with policies; otherwise an `always` guardrail is tried on these roles alone, since the
    policies of the others have not changed. `steps` limits the work for one guardrail and one
    role."""

    def __init__(
        self, roles: Mapping[str, Sequence[Policy]], *, every: bool, steps: int = MAX_STEPS
    ) -> None:
        self.roles = {role: _Role(tuple(policies)) for role, policies in roles.items()}
        self._every = every
        self._steps = steps

    def counterexample(self, guardrail: Guardrail) -> Retrieval | None:
        """Return a request that breaks the guardrail; None if the guardrail holds. Raises
        `TooManyClasses`."""
        for name in _roles(guardrail, self.roles):
            role = self.roles.get(name, _Role(()) if self._every else None)
            found = None if role is None else _in_role(guardrail, name, role, self._steps)
            if found is not None:
                return found
        return None


class _Role:
    """The policies of one role. `allowed[rank]` are the entries of `allowed_sources` of those
    policies that allow the level of that rank."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self.policies = policies
        self.allowed = [
            {
                entry
                for each in policies
                if RANK[each.max_sensitivity] >= rank
                for entry in each.allowed_sources
            }
            for rank in range(len(SENSITIVITIES))
        ]


def counterexample(guardrail: Guardrail, roles: Mapping[str, Sequence[Policy]]) -> Retrieval | None:
    """Return a request that breaks the guardrail, if `roles` are all policies in force; None if the
    guardrail holds. Raises `TooManyClasses`."""
    return GuardedRoles(roles, every=True).counterexample(guardrail)


def _roles(guardrail: Guardrail, known: Mapping[str, Any]) -> list[str]:
    """Return the names of the roles that the guardrail is about. An `always` guardrail names its
    roles, and they count even if they have no policies, since then they are allowed nothing."""
    excepted = matcher(guardrail.except_roles)
    if guardrail.kind == "always":
        return [role for role in guardrail.roles if not excepted(role)]
    covered = matcher(guardrail.roles or ("*",))
    return sorted(role for role in known if covered(role) and not excepted(role))


def _in_role(guardrail: Guardrail, name: str, role: _Role, steps: int) -> Retrieval | None:
    never = guardrail.kind == "never"
    ranks = [RANK[level] for level in guardrail.levels or SENSITIVITIES]
    # Allowed at one level means allowed at those below, so one level decides for all.
    rank = min(ranks) if never else max(ranks)
    agents, tasks = (
        tuple(each for each in some if each != ABSENT)
        for some in (guardrail.agents, guardrail.tasks)
    )
    allowed = role.allowed[rank]
    if never and guardrail.sources:
        allowed = set(filter(overlaps_with(guardrail.sources), allowed))
    if never and not allowed:
        return None  # most guardrails, for most roles
    relevant = _relevant(guardrail, agents, role.policies)
    access = Access(relevant, query=AccessQuery(agents, tasks, guardrail.sources, steps=steps))
    over = access.space
    absent = ABSENT_AGENT if ABSENT in guardrail.agents else 0
    absent_task = (None,) if ABSENT in guardrail.tasks else ()
    sources = over.source_names.everything
    if guardrail.sources:
        sources = over.sources_of(guardrail.sources)
    for calls in access.calls(
        absent | over.agents_of(agents) if guardrail.agents else None,
        over.tasks_of((*absent_task, *tasks)) if guardrail.tasks else None,
    ):
        allowing = access.allowed(calls)[rank]
        if breaking := sources & (allowing if never else ~allowing):
            level = SENSITIVITIES[rank]
            return example(name, calls.agents, calls.tasks, breaking, level, over)
    return None


def _relevant(
    guardrail: Guardrail, named: Sequence[str], policies: Sequence[Policy]
) -> Iterator[Policy]:
    """Yield the policies reduced to those entries that matter for requests that the guardrail
    describes. Other entries would make the analysis larger, and not change its answer. `named` are
    the agents that the guardrail names."""
    its_sources, its_agents = overlaps_with(guardrail.sources), overlaps_with(named)
    for each in policies:
        allowed, denied = each.allowed_sources, each.denied_sources
        if guardrail.sources:
            allowed, denied = (
                tuple(filter(its_sources, allowed)),
                tuple(filter(its_sources, denied)),
            )
        if not (allowed or denied or each.denied_tasks):
            continue
        agents = each.permitted_agent_ids
        if guardrail.agents and agents:
            agents = tuple(filter(its_agents, agents))
            if not agents:
                continue  # an empty list would admit every agent; this one admits none of these
        yield replace(
            each, allowed_sources=allowed, denied_sources=denied, permitted_agent_ids=agents
        )
