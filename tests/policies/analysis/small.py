"""Small policy sets over small alphabets, and every request that can tell them apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from typing import Any

from policies.analysis.difference import by_role
from policies.checks.finding import Facts
from policies.definitions.model import SENSITIVITIES, Agent, Key, Policy, TenantSettings
from policies.evaluate import Decision, evaluate
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from tests.policies.naive import matches

ROLES = ("r", "s")
AGENTS = (None, "a", "ab", "x", "absent")
TASKS = (None, "t", "*", "absent", "other")
SOURCES = tuple("".join(each) for length in (1, 2, 3) for each in product("abx", repeat=length))
_KEY, _SETTINGS = Key("key_1", "evaluate"), TenantSettings("t")


def _entries(random: Random, most: int) -> tuple[str, ...]:
    return tuple(
        "".join(random.choice("ab*?") for _ in range(random.randint(1, 3)))
        for _ in range(random.randint(0, most))
    )


def _tasks(random: Random, most: int) -> tuple[str, ...]:
    return tuple(random.choice(("t", "*", "absent")) for _ in range(random.randint(0, most)))


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


def of(**fields: Any) -> Policy:
    """A policy of the role `r`, otherwise with `fields`."""
    usual = Policy("", 0, "p", "r", allowed_sources=(), denied_sources=(), max_sensitivity="high")
    return replace(usual, **fields)


def pair(random: Random) -> tuple[list[Policy], list[Policy]]:
    """An older and a newer set: unrelated, or the newer with some policies replaced."""
    old = [policy(random, number) for number in range(random.randint(0, 4))]
    if random.random() < 0.5:
        return old, [policy(random, number) for number in range(random.randint(0, 4))]
    kept = [one if random.random() < 0.6 else policy(random, at) for at, one in enumerate(old)]
    return old, [*kept, policy(random, 9)] if random.random() < 0.3 else kept


def requests(role: str, sources: Iterable[str] = SOURCES) -> list[Retrieval]:
    return [
        Retrieval(role, "u", source, level, task_type=task, agent_id=agent)
        for agent, task, source, level in product(AGENTS, TASKS, sources, SENSITIVITIES)
    ]


def roles(policies: Iterable[Policy]) -> dict[str, Role]:
    return {name: compile_role(name, each) for name, each in by_role(policies).items()}


def decision(request: Retrieval, compiled: dict[str, Role]) -> Decision:
    """What the core decides where checks 1 to 5 pass."""
    agent_id, role = request.agent_id, request.agent_role
    agent = None if agent_id is None else Agent(agent_id, "approved", (role,))
    return evaluate(request, Facts(_SETTINGS, _KEY, agent, None, compiled.get(role), 1))


def allowed(request: Retrieval, compiled: dict[str, Role]) -> bool:
    return decision(request, compiled).decision == "ALLOW"


def covers(items: list[Any], name: str | None) -> bool:
    """Whether the items of a row match a name, read as `TOOLS.md`, Rows says."""
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


class Rows:
    """Rows, by the requests that they match."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        # A request is looked up often, and a name matched once.
        self._covers = cache(lambda row, member, name: covers(rows[row][member], name))
        self._rows = rows

    def matching(self, request: Retrieval) -> list[dict[str, Any]]:
        """The rows that a request belongs to."""
        return [
            row
            for at, row in enumerate(self._rows)
            if row["agent_role"] == request.agent_role
            and request.sensitivity_level in row["levels"]
            and self._covers(at, "agents", request.agent_id)
            and self._covers(at, "tasks", request.task_type)
            and self._covers(at, "sources", request.source_id)
        ]
