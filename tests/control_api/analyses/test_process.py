"""An analysis runs in a process of its own, and ends with it: in time, out of time, or with the
caller gone."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from control_api.analyses import process
from control_api.analyses.job import Job
from control_api.analyses.process import Analyses
from policies.ground.errors import Invalid, Unavailable

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def policy(draw: random.Random, number: int) -> dict[str, Any]:
    return {
        "name": f"p{number}",
        "agent_role": f"role{number % 10}",
        "allowed_sources": [f"source-{draw.randint(0, 300)}" for _ in range(20)],
        "denied_sources": [f"source-{draw.randint(1, 9)}*"],
        "max_sensitivity": draw.choice(("low", "medium", "high")),
        "permitted_agent_ids": [f"agt_{draw.randint(0, 50)}" for _ in range(3)],
        "denied_tasks": [f"task-{draw.randint(0, 20)}"],
    }


def asks(policies: int) -> Job:
    draw = random.Random(1)
    body = {"policies": [policy(draw, each) for each in range(policies)]}
    return Job("diff", {}, [json.dumps(body).encode(), b"[]"])


LITTLE, MUCH = asks(1), asks(12_000)
"""Answered at once, and after many seconds."""


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


def children() -> set[str]:
    """The processes that this one started and has not waited for."""
    return {
        child
        for thread in Path("/proc/self/task").iterdir()
        for child in (thread / "children").read_text().split()
    }


def test_a_question_is_answered(run: Run) -> None:
    answer = json.loads(run(Analyses().answer("one", LITTLE)))
    assert {row["agent_role"] for row in answer["newly_allowed"]} == {"role0"}
    assert answer["newly_denied"] == []


def test_a_question_whose_time_is_up_leaves_no_process(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SECONDS", 1.5)
    before = children()
    with pytest.raises(Unavailable, match="did not finish within"):
        run(Analyses().answer("one", MUCH))
    assert children() <= before


def test_a_caller_that_leaves_takes_its_analysis_along(run: Run) -> None:
    before = children()

    async def left() -> None:
        analyses = Analyses()
        asked = asyncio.ensure_future(analyses.answer("one", MUCH))
        await asyncio.sleep(1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await analyses.answer("one", LITTLE)  # its place is free again

    run(left())
    assert children() <= before


def test_computing_time_has_a_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CPU_SECONDS", 1)
    with pytest.raises(Invalid, match="needs more than"):
        run(Analyses().answer("one", MUCH))


def test_a_tenant_has_one_analysis_at_a_time_and_all_have_two(run: Run) -> None:
    async def several() -> None:
        analyses = Analyses()
        asked = [asyncio.ensure_future(analyses.answer(each, MUCH)) for each in ("one", "two")]
        await asyncio.sleep(0)
        for tenant in ("one", "three"):
            with pytest.raises(Unavailable, match="running already"):
                await analyses.answer(tenant, LITTLE)
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert await analyses.answer("three", LITTLE)

    run(several())
