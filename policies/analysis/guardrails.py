"""Finds the request that breaks a guardrail (`policies/definitions/guardrail.py`).

A guardrail that does not hold has a counterexample: a request that the core decides the wrong way.
Identity and sessions (checks 1 to 5) are not part of it. Pure, and reads no file.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from policies.analysis.access import ABSENT_AGENT, Access, Asked
from policies.analysis.examples import example
from policies.definitions.guardrail import ABSENT, Guardrail
from policies.definitions.model import SENSITIVITIES, Policy
from policies.definitions.wildcard import matcher
from policies.retrieval import Retrieval


def counterexample(guardrail: Guardrail, roles: Mapping[str, Sequence[Policy]]) -> Retrieval | None:
    """A request that breaks the guardrail where `roles` are the policies in force; None if it
    holds. Raises `TooManyClasses`."""
    for role in _roles(guardrail, roles):
        found = _in_role(guardrail, role, roles.get(role, ()))
        if found is not None:
            return found
    return None


def _roles(guardrail: Guardrail, known: Mapping[str, Any]) -> list[str]:
    if guardrail.kind == "always":
        return list(guardrail.roles)  # exact names; one without policies allows nothing
    covered = matcher(guardrail.roles or ("*",))
    excepted = matcher(guardrail.except_roles)
    return sorted(role for role in known if covered(role) and not excepted(role))


def _in_role(guardrail: Guardrail, role: str, policies: Sequence[Policy]) -> Retrieval | None:
    agents, tasks = (
        tuple(each for each in some if each != ABSENT)
        for some in (guardrail.agents, guardrail.tasks)
    )
    access = Access(policies, asked=Asked(agents, tasks, guardrail.sources))
    over = access.space
    levels = guardrail.levels or SENSITIVITIES
    absent = ABSENT_AGENT if ABSENT in guardrail.agents else 0
    absent_task = (None,) if ABSENT in guardrail.tasks else ()
    sources = over.source_names.everything
    if guardrail.sources:
        sources = over.sources_of(guardrail.sources)
    for calls in access.calls(
        absent | over.agents_of(agents) if guardrail.agents else None,
        over.tasks_of((*absent_task, *tasks)) if guardrail.tasks else None,
    ):
        for level, allowed in zip(SENSITIVITIES, access.allowed(calls), strict=True):
            breaking = sources & (~allowed if guardrail.kind == "always" else allowed)
            if breaking and level in levels:
                return example(role, calls.agents, calls.tasks, breaking, level, over)
    return None
