"""What is answered within the service's own process is small: whatever a caller sends, it keeps
the event loop for milliseconds."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

import pytest

from control_api.policy.analyses import questions
from control_api.policy.analyses.process import Job
from control_api.policy.analyses.questions import QUESTIONS
from policies.analysis.matrix import Columns

RULES = [{"name": "n", "never": {"sources": ["*customer*data*"]}}]


class Elsewhere:
    """Stands for the process that answers larger questions."""

    asked = 0

    async def answer(self, tenant_id: str, job: Job) -> bytes:
        self.asked += 1
        return b"{}"


def goes_elsewhere(policies: list[Any], rules: list[Any], analyses_needed: int = 1) -> bool:
    other: Any = Elsewhere()
    body = {"policies": policies, "keep_others": True}
    parts = [json.dumps(body).encode(), b"[]", json.dumps(rules).encode()]
    asyncio.run(questions.answer(other, "t", Job("review", {}, parts), analyses_needed))
    return bool(other.asked)


def policy(*sources: str) -> dict[str, Any]:
    return {
        "name": "p",
        "agent_role": "r",
        "allowed_sources": list(sources),
        "denied_sources": [],
        "max_sensitivity": "low",
    }


def documents(roles: dict[str, list[dict[str, Any]]]) -> bytes:
    """The policies in force of these roles."""
    stored = [
        [
            {**each, "policy_id": "", "version": 0, "name": str(at), "agent_role": role}
            for at, each in enumerate(some)
        ]
        for role, some in roles.items()
    ]
    return json.dumps(stored).encode()


def test_a_large_table_is_made_in_another_process_with_the_same_cells() -> None:
    many = [f"source-{number:0100}" for number in range(700)]  # more than 64 KiB
    roles = {"large": [policy(*many)], "small": [policy("handbook")]}
    job = Job("matrix", Columns("source-*7", None, 2)._asdict(), (documents(roles),))
    other: Any = Elsewhere()
    asyncio.run(questions.answer(other, "t", job))
    assert other.asked
    found = json.loads(QUESTIONS["matrix"](job))
    assert found["sources"] == ["source-*7", many[7]]
    cells = {row["agent_role"]: [each["level"] for each in row["cells"]] for row in found["roles"]}
    assert cells == {"large": ["low", "low"], "small": [None, None]}


def test_a_role_that_can_t_be_analysed_has_a_fault_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "MAX_STEPS", 1_000)
    words = [f"*{first}?{second}*" for first, second in product("abcdefgh", repeat=2)]
    roles = {"r": [policy("handbook")], "wild": [policy(each) for each in words]}
    options = Columns("handbook", None, 1)._asdict()
    job = Job("matrix", options, (documents(roles),))
    asked = QUESTIONS["matrix"](job)
    rows = {row["agent_role"]: row for row in json.loads(asked)["roles"]}
    assert (rows["r"]["fault"], rows["r"]["cells"][0]["level"]) == (None, "low")
    assert rows["wild"]["cells"] is None
    assert "overlap in too many ways" in rows["wild"]["fault"]
    # Where a question is answered within the service's own process, it goes elsewhere.
    other: Any = Elsewhere()
    asyncio.run(questions.answer(other, "t", job))
    assert other.asked


def test_a_small_question_needs_no_other_process() -> None:
    assert not goes_elsewhere([policy("handbook", "contracts/*")], RULES)


@pytest.mark.parametrize(
    ("policies", "analyses_needed"),
    [
        ([policy(*(f"*{number}?*?*x" for number in range(60)))], 1),  # wildcards
        ([policy(*(f"source-{number:040}" for number in range(800)))], 1),  # bytes
        ([policy("handbook")], questions.MAX_SMALL_ANALYSES + 1),
        # Few and short, but each meets each of the others.
        ([policy(*("*".join(f"a{number}b" for _ in range(5)) for number in range(40)))], 1),
    ],
)
def test_a_large_question_needs_another_process(policies: list[Any], analyses_needed: int) -> None:
    assert goes_elsewhere(policies, RULES, analyses_needed)
