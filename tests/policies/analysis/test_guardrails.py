"""Guardrails against brute force: one holds exactly if no request breaks it."""

from __future__ import annotations

from random import Random

import pytest

from policies.analysis.difference import by_role
from policies.analysis.guardrails import counterexample
from policies.definitions.guardrail import ABSENT, Guardrail
from policies.definitions.model import SENSITIVITIES
from policies.retrieval import Retrieval
from tests.policies.analysis import small
from tests.policies.naive import listed

SEEDS = 25


def guardrail(random: Random) -> Guardrail:
    always = random.random() < 0.4

    def some(*choices: str) -> tuple[str, ...]:
        return tuple(each for each in choices if random.random() < 0.3)

    return Guardrail(
        "g",
        "always" if always else "never",
        roles=("r",) if always else some("r", "s*"),
        except_roles=() if always else some("r"),
        agents=some(ABSENT, "a", "a*", "?"),
        sources=some("a", "b*", "*x", "ab"),
        levels=tuple(level for level in SENSITIVITIES if random.random() < 0.3),
        tasks=some(ABSENT, "t", "other"),
    )


def described(rule: Guardrail, request: Retrieval) -> bool:
    """Whether the guardrail is about this request."""
    agents, tasks = rule.agents, rule.tasks
    return (
        listed(rule.roles or ("*",), request.agent_role)
        and not listed(rule.except_roles, request.agent_role)
        and listed(rule.sources or ("*",), request.source_id)
        and request.sensitivity_level in (rule.levels or SENSITIVITIES)
        and (not agents or _named(agents, request.agent_id))
        and (not tasks or (request.task_type or ABSENT) in tasks)
    )


def _named(agents: tuple[str, ...], name: str | None) -> bool:
    if name is None:
        return ABSENT in agents
    return listed(tuple(each for each in agents if each != ABSENT), name)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_guardrail_holds_exactly_if_no_request_breaks_it(seed: int) -> None:
    random = Random(seed)
    policies = [small.policy(random, number) for number in range(random.randint(0, 4))]
    compiled = small.roles(policies)
    requests = [
        each
        for role in small.ROLES
        for each in small.requests(role)
        if each.task_type in (None, "t", "other") and each.agent_id != ABSENT
    ]
    for _ in range(4):
        rule = guardrail(random)
        broken = [
            each
            for each in requests
            if described(rule, each) and small.allowed(each, compiled) != (rule.kind == "always")
        ]
        found = counterexample(rule, by_role(policies))
        if found is None:
            assert not broken
        else:
            assert described(rule, found)
            assert small.allowed(found, compiled) != (rule.kind == "always")


def test_a_role_without_policies_breaks_a_guardrail_that_demands_an_allow() -> None:
    rule = Guardrail("g", "always", roles=("auditor",), sources=("handbook",), levels=("low",))
    found = counterexample(rule, {})
    assert found is not None
    assert (found.agent_role, found.source_id) == ("auditor", "handbook")
