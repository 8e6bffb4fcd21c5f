"""One request that stands for many, and what the core decides about it."""

from itertools import count
from typing import Any

from policies.analysis.access import OTHER, Agent, Space, Task
from policies.analysis.names import NameClass
from policies.checks.finding import Facts
from policies.definitions.model import Agent as RegistryEntry
from policies.definitions.model import Key, Sensitivity, TenantSettings
from policies.evaluate import evaluate
from policies.retrieval import Retrieval
from policies.sets.role import Role

USER = "example-user"
"""The user of each example: the policies say nothing about users."""

_KEY = Key("key_example", "evaluate")
_SETTINGS = TenantSettings("example")
_MEMBERS = ("agent_role", "agent_id", "user_id", "source_id", "sensitivity_level", "task_type")


def example(
    role: str, agent: Agent, task: Task, source: NameClass, level: Sensitivity, over: Space
) -> Retrieval:
    """The shortest request of these classes of `over`."""
    if task is OTHER:
        # Of one task more than there are names, one is not taken.
        task = next(each for each in map("task-{}".format, count(1)) if each not in over.tasks)
    return Retrieval(
        role,
        USER,
        source.example,
        level,
        task_type=task,
        agent_id=None if agent is None else agent.example,
    )


def body(request: Retrieval) -> dict[str, Any]:
    """The request as the body of an evaluation."""
    members = {name: getattr(request, name) for name in _MEMBERS}
    return {name: value for name, value in members.items() if value is not None}


def decided(request: Retrieval, role: Role | None) -> dict[str, Any]:
    """`{decision, policy_name, check}`: what the core decides where checks 1 to 5 pass."""
    agent = None
    if request.agent_id is not None:
        agent = RegistryEntry(request.agent_id, "approved", (request.agent_role,))
    decision = evaluate(request, Facts(_SETTINGS, _KEY, agent, None, role, 0))
    return {
        "decision": decision.decision,
        "policy_name": decision.policy_name,
        "check": decision.check,
    }
