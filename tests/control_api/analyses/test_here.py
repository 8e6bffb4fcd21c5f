"""What is answered within the service's own process is small: whatever a caller sends, it keeps
the event loop for milliseconds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from control_api.analyses import here
from control_api.analyses.job import Job

RULES = [{"name": "n", "never": {"sources": ["*customer*data*"]}}]


class Elsewhere:
    """Stands for the process that answers larger questions."""

    asked = 0

    async def answer(self, tenant_id: str, job: Job) -> bytes:
        self.asked += 1
        return b"{}"


def goes_elsewhere(policies: list[Any], rules: list[Any], tries: int = 1) -> bool:
    other: Any = Elsewhere()
    body = {"policies": policies, "keep_others": True}
    parts = [json.dumps(body).encode(), b"[]", json.dumps(rules).encode()]
    asyncio.run(here.answer(other, "t", Job("review", {}, parts), tries))
    return bool(other.asked)


def policy(*sources: str) -> dict[str, Any]:
    return {
        "name": "p",
        "agent_role": "r",
        "allowed_sources": list(sources),
        "denied_sources": [],
        "max_sensitivity": "low",
    }


def test_a_small_question_is_answered_here() -> None:
    assert not goes_elsewhere([policy("handbook", "contracts/*")], RULES)


@pytest.mark.parametrize(
    ("policies", "tries"),
    [
        ([policy(*(f"*{number}?*?*x" for number in range(60)))], 1),  # wildcards
        ([policy(*(f"source-{number:040}" for number in range(800)))], 1),  # bytes
        ([policy("handbook")], here.MAX_TRIES + 1),
        # Few and short, but each meets each of the others.
        ([policy(*("*".join(f"a{number}b" for _ in range(5)) for number in range(40)))], 1),
    ],
)
def test_a_question_of_another_size_is_answered_elsewhere(policies: list[Any], tries: int) -> None:
    assert goes_elsewhere(policies, RULES, tries)
