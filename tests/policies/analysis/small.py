"""Small policy sets over small alphabets, and every request that can tell them apart."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

from policies.checks.finding import Facts
from policies.definitions.model import SENSITIVITIES, Agent, Key, Policy, TenantSettings
from policies.evaluate import evaluate
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from tests.policies.naive import matches

ROLES = ("r", "s")
AGENTS = (None, "a", "ab", "x", "absent")
TASKS = (None, "t", "u", "*", "absent", "other")
SOURCES = tuple("".join(each) for length in (1, 2, 3) for each in product("abx", repeat=length))
_KEY, _SETTINGS = Key("key_1", "evaluate"), TenantSettings("t")


def _entries(random: Random, most: int) -> tuple[str, ...]:
    return tuple(
        "".join(random.choice("ab*?") for _ in range(random.randint(1, 3)))
        for _ in range(random.randint(0, most))
    )


def _tasks(random: Random, most: int) -> tuple[str, ...]:
    return tuple(random.choice(("t", "u", "*", "absent")) for _ in range(random.randint(0, most)))


def policy(random: Random, number: int) -> Policy:
    agents = _entries(random, 2) if random.random() < 0.4 else ()
    return Policy(
        policy_id=f"p{number}",
        version=1,
        name=f"n{number}",
        agent_role=random.choice(ROLES),
        allowed_sources=_entries(random, 3),
        denied_sources=_entries(random, 1) if random.random() < 0.4 else (),
        max_sensitivity=random.choice(SENSITIVITIES),
        allowed_tasks=_tasks(random, 1),
        denied_tasks=_tasks(random, 1) if random.random() < 0.3 else (),
        permitted_agent_ids=("absent",) if random.random() < 0.05 else agents,
    )


def pair(random: Random) -> tuple[list[Policy], list[Policy]]:
    """An older and a newer set: unrelated, or the newer with some policies replaced."""
    old = [policy(random, number) for number in range(random.randint(0, 4))]
    if random.random() < 0.5:
        return old, [policy(random, number) for number in range(random.randint(0, 4))]
    kept = [one if random.random() < 0.6 else policy(random, at) for at, one in enumerate(old)]
    return old, [*kept, policy(random, 9)] if random.random() < 0.3 else kept


def requests(role: str) -> list[Retrieval]:
    return [
        Retrieval(role, "u", source, level, task_type=task, agent_id=agent)
        for agent, task, source, level in product(AGENTS, TASKS, SOURCES, SENSITIVITIES)
    ]


def roles(policies: list[Policy]) -> dict[str, Role]:
    names = {each.agent_role for each in policies}
    return {
        name: compile_role(name, [each for each in policies if each.agent_role == name])
        for name in names
    }


def allowed(request: Retrieval, compiled: dict[str, Role]) -> bool:
    agent_id, role = request.agent_id, request.agent_role
    agent = None if agent_id is None else Agent(agent_id, "approved", (role,))
    facts = Facts(_SETTINGS, _KEY, agent, None, compiled.get(role), 1)
    return evaluate(request, facts).decision == "ALLOW"


def covers(items: list[Any], name: str | None) -> bool:
    """Whether the items of a row match a name, read as `policy-tools.md` section 7 says."""
    return any(_covered(item, name) for item in items)


def _covered(item: Any, name: str | None) -> bool:
    if item == "absent":
        return name is None
    if name is None:
        return False
    if isinstance(item, str):
        return matches(item, name)
    if "name" in item:
        return bool(item["name"] == name)
    some = [item["any"]] if isinstance(item["any"], str) else item["any"]
    return covers(some, name) and not covers(item["except"], name)


def matching(rows: list[dict[str, Any]], request: Retrieval) -> list[dict[str, Any]]:
    """The rows that a request belongs to."""
    return [
        row
        for row in rows
        if row["agent_role"] == request.agent_role
        and request.sensitivity_level in row["levels"]
        and covers(row["agents"], request.agent_id)
        and covers(row["tasks"], request.task_type)
        and covers(row["sources"], request.source_id)
    ]
