"""One request that stands for many, and what the core decides about it."""

from itertools import count
from typing import Any

from policies.analysis.access import ABSENT_AGENT, Space
from policies.analysis.names import members
from policies.definitions.model import Sensitivity
from policies.evaluate import evaluate_admitted
from policies.retrieval import Retrieval
from policies.sets.role import Role

USER = "example-user"
"""The user of each example: the policies say nothing about users."""

_MEMBERS = ("agent_role", "agent_id", "user_id", "source_id", "sensitivity_level", "task_type")


def example(
    role: str, agents: int, tasks: int, sources: int, level: Sensitivity, over: Space
) -> Retrieval:
    """The simplest request of these sets of `over`: without an agent or a task if it can be."""
    agent_id = None
    if not agents & ABSENT_AGENT:
        agent_id = over.agent_names.shortest(over.named_agents(agents)).example
    source = over.source_names.shortest(sources)
    return Retrieval(
        role, USER, source.example, level, task_type=_task(tasks, over), agent_id=agent_id
    )


def _task(tasks: int, over: Space) -> str | None:
    """None, or else a name that a policy has, or else one that none has."""
    some = {over.tasks[each] for each in members(tasks)}
    if None in some:
        return None
    names = sorted(each for each in some if isinstance(each, str))
    unnamed = (each for each in map("task-{}".format, count(1)) if each not in over.tasks)
    return names[0] if names else next(unnamed)


def body(request: Retrieval) -> dict[str, Any]:
    """The request as the body of an evaluation."""
    members = {name: getattr(request, name) for name in _MEMBERS}
    return {name: value for name, value in members.items() if value is not None}


def decided(request: Retrieval, role: Role | None) -> dict[str, Any]:
    """`{decision, policy_name, check}`: what the core decides where checks 1 to 5 pass."""
    decision = evaluate_admitted(request, role)
    return {
        "decision": decision.decision,
        "policy_name": decision.policy_name,
        "check": decision.check,
    }
