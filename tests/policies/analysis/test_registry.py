"""Who may read what with a registry, against the core's evaluation of every request: agents in all
statuses, roles, bindings and keys."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from policies.analysis.access import AccessQuery
from policies.analysis.callers import CallersOfRoles, RegistrySnapshot
from policies.analysis.difference import by_role
from policies.analysis.rows import access_rows
from policies.checks.finding import Facts
from policies.definitions.model import (
    AGENT_STATUSES,
    SENSITIVITIES,
    Agent,
    Key,
    Policy,
    TenantSettings,
)
from policies.evaluate import evaluate
from policies.retrieval import Retrieval
from policies.sets.role import Role
from tests.policies.analysis import small
from tests.support.properties import few

AGENTS = ("a", "ab", "b", "x", "absent")
"""Some of them are registered."""
LISTS = ((), ("r",), ("s",), ("r", "s"), ("q",))


def _agent(random: Random, agent_id: str) -> Agent:
    status = "approved" if random.random() < 0.6 else random.choice(AGENT_STATUSES)
    bound = random.choice(("key_0", "key_1", "key_2", "gone")) if random.random() < 0.3 else None
    return Agent(agent_id, status, random.choice(LISTS[1:]), bound)


def _key(random: Random, number: int) -> Key:
    bound = random.choice((*AGENTS, "other")) if random.random() < 0.5 else None
    return Key(f"key_{number}", "evaluate", bound, random.choice(LISTS))


def _registry(random: Random) -> RegistrySnapshot:
    return RegistrySnapshot(
        TenantSettings("t", require_agent_id=random.random() < 0.3),
        [_agent(random, each) for each in AGENTS if random.random() < 0.8],
        [_key(random, number) for number in range(random.randint(0, 3))],
    )


def _allowed(request: Retrieval, registry: RegistrySnapshot, roles: dict[str, Role]) -> bool:
    """Whether the core allows the request with one of the keys."""
    agents = {each.agent_id: each for each in registry.agents}
    agent = None if request.agent_id is None else agents.get(request.agent_id)
    role = roles.get(request.agent_role)
    return any(
        evaluate(request, Facts(registry.settings, key, agent, None, role, 1)).decision == "ALLOW"
        for key in registry.keys
    )


@pytest.mark.parametrize("seed", range(few(40)))
def test_access_equals_what_evaluation_allows_to_registered_agents(seed: int) -> None:
    random = Random(seed)
    policies = [small.policy(random, number) for number in range(4)]
    registry = _registry(random)
    compiled, callers = small.roles(policies), CallersOfRoles(registry)
    for role, its_policies in by_role(policies).items():
        rows = access_rows(role, its_policies, AccessQuery(), callers=callers.of(role))
        looked_up = small.Rows(rows)
        for agent, task, source, level in product(
            (None, *AGENTS), small.TASKS, small.SOURCES, SENSITIVITIES
        ):
            request = Retrieval(role, "u", source, level, task_type=task, agent_id=agent)
            matching = [
                row
                for row in looked_up.matching(request)
                if agent is None or agent in row["agent_ids"]
            ]
            assert len(matching) == _allowed(request, registry, compiled), (request, registry)
        for row in rows:
            assert row["agent_ids"] or "absent" in row["agents"]
            assert all(small.covers(row["agents"], each) for each in row["agent_ids"])


def test_the_agents_are_limited_by_the_question() -> None:
    role = "r"
    policies = [Policy("p", 1, "n", role, ("handbook",), (), "high")]
    registry = RegistrySnapshot(
        TenantSettings("t"),
        [Agent(each, "approved", (role,)) for each in ("agt_1", "agt_2")],
        [Key("key_1", "admin")],
    )
    callers = CallersOfRoles(registry).of(role)
    assert (callers.absent, callers.agents) == (True, ("agt_1", "agt_2"))
    everyone = access_rows(role, policies, AccessQuery(), callers=callers)
    assert {tuple(row["agent_ids"]) for row in everyone} == {("agt_1", "agt_2")}
    one = access_rows(role, policies, AccessQuery(agents=("agt_2",)), callers=callers)
    assert {tuple(row["agent_ids"]) for row in one} == {("agt_2",)}
    assert access_rows(role, policies, AccessQuery(agents=("agt_3",)), callers=callers) == []
