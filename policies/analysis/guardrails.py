"""Finds the request that breaks a guardrail (`policies/definitions/guardrail.py`).

A guardrail that does not hold has a counterexample: a request that the core decides the wrong way.
Identity and sessions (checks 1 to 5) are not part of it. Pure, and reads no file.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from policies.analysis.access import Access, Agent, Asked, Space, Task, space
from policies.analysis.examples import example
from policies.definitions.guardrail import ABSENT, Guardrail
from policies.definitions.model import RANK, SENSITIVITIES, Policy
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
    named = tuple(each for each in guardrail.agents if each != ABSENT)
    tasks = tuple(each for each in guardrail.tasks if each != ABSENT)
    over = space(policies, Asked(named, tasks, guardrail.sources))
    access = Access(policies, over)
    ranks = sorted(RANK[level] for level in guardrail.levels or SENSITIVITIES)
    wanted = guardrail.kind == "always"
    sources = over.sources_of(guardrail.sources) if guardrail.sources else over.sources
    for agent, task, source in product(
        _agents(guardrail, named, over), _tasks(guardrail, tasks, over), sources
    ):
        levels = access.levels(
            access.agent_effect(agent), access.task_effect(task), access.source_effect(source)
        )
        for rank in ranks:
            if (rank < levels) != wanted:
                return example(role, agent, task, source, SENSITIVITIES[rank], over)
    return None


def _agents(guardrail: Guardrail, named: tuple[str, ...], over: Space) -> Sequence[Agent]:
    if not guardrail.agents:
        return over.agents
    absent: tuple[Agent, ...] = (None,) if ABSENT in guardrail.agents else ()
    return (*absent, *over.agents_of(named))


def _tasks(guardrail: Guardrail, named: tuple[str, ...], over: Space) -> Sequence[Task]:
    if not guardrail.tasks:
        return over.tasks
    absent: tuple[Task, ...] = (None,) if ABSENT in guardrail.tasks else ()
    return (*absent, *named)
