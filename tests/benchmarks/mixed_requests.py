"""Evaluations that differ, as agents send them: 100 roles, 1,000 policies, 50 agents, 200 sessions,
tasks, ten sources; one in seven asks for a denied source.

Knows no service beyond the stack that it registers the agents with.
"""

from typing import Any

import yaml

from tests.benchmarks.measure import request
from tests.stack import POLICIES, Stack

_EVALUATE = "/v1/context/evaluate"
ROLES = 100
AGENTS = 50
SESSIONS_PER_AGENT = 4
SOURCES = 10
TASKS = ("answer", "summarise", "compare")
REQUESTS = 2_000


def policies() -> str:
    """A policy file: what the stack has, and ten policies for each role here."""
    file = yaml.safe_load(POLICIES)
    file["policies"] += [
        {
            "name": f"role-{role}-reads-{source}",
            "agent_role": f"role-{role}",
            "allowed_sources": [f"source-{source}"],
            "denied_sources": ["payroll"],
            "max_sensitivity": "high",
            "allowed_tasks": list(TASKS),
        }
        for role in range(ROLES)
        for source in range(SOURCES)
    ]
    return yaml.safe_dump(file)


def prepare(stack: Stack) -> bytes:
    """Registers the agents, and returns the requests, one after the other. The stack must have been
    prepared, and have the policies above."""
    for agent in range(AGENTS):
        name = f"agt_{agent}"
        stack.admin("POST", "/v1/agents", {"agent_id": name, "agent_role": f"role-{agent}"})
        for status in ("pending_approval", "approved"):
            stack.admin("PATCH", f"/v1/agents/{name}/status", {"status": status})
    asked = (_asked(number) for number in range(REQUESTS))
    return b"".join(request("POST", _EVALUATE, each, stack.agent_key) for each in asked)


def _asked(number: int) -> dict[str, Any]:
    # Primes, so that no two of these go round together.
    agent = number * 7 % AGENTS
    return {
        "agent_role": f"role-{agent}",
        "agent_id": f"agt_{agent}",
        "user_id": f"user-{number * 11 % 400}",
        "session_id": f"session-{agent}-{number * 13 % SESSIONS_PER_AGENT}",
        "source_id": "payroll" if number % 7 == 0 else f"source-{number * 3 % SOURCES}",
        "task_type": TASKS[number % len(TASKS)],
        "sensitivity_level": ("low", "medium", "high")[number % 3],
    }
