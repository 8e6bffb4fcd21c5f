"""Candidates in a sidecar that holds only what decisions use: their documents come in the
background, whatever becomes of Redis, and no decision waits for them or fails with them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from policies.sets.policy_set import candidate_name
from policies.sets.redis_keys import document_field, set_key
from tests.sidecar.policy_cache.partial_replica.redis_set import (
    caught_up,
    fake_control_api_with_redis,
    held_documents,
)
from tests.support import redis
from tests.support.candidate_tenants import TenantWithCandidates
from tests.support.fake_control_api import ROLE, policy
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until_async

pytestmark = redis.needs_redis

TELLER = "teller"
ACTIVE = {ROLE: [policy()], TELLER: [policy(agent_role=TELLER, name="tellers")]}
CLOSED = {
    role: [policy(agent_role=role, name="closed", allowed_sources=())] for role in (ROLE, TELLER)
}


@asynccontextmanager
async def following(
    tmp_path: Path,
) -> AsyncIterator[tuple[FakeControlApiWithRedis, RunningSidecar]]:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            TenantWithCandidates(ACTIVE, {"closed": CLOSED}).publish(control)
            await caught_up(running, control)
            yield control, running


async def evaluated(running: RunningSidecar, **changed: Any) -> tuple[str, list[str]]:
    """The answer, and what the candidate decided of it by its entry."""
    answer = await running.evaluate(**changed)
    pub = (await running.records())[-1]["pub"]
    return answer["decision"], [each["decision"] for each in pub.get("candidates", [])]


async def fetched(running: RunningSidecar, role: str) -> None:
    name = candidate_name("closed", role)
    await until_async("the candidate's document is here", lambda: name in held_documents(running))


async def test_a_missing_document_is_an_error_until_it_is_fetched(tmp_path: Path) -> None:
    async with following(tmp_path) as (_, running):
        assert candidate_name("closed", ROLE) not in held_documents(running)
        assert await evaluated(running) == ("ALLOW", ["ERROR"])
        await fetched(running, ROLE)
        assert await evaluated(running) == ("ALLOW", ["DENY"])
        # Another role has another document.
        asked = {"agent_role": TELLER, "agent_id": None}
        assert (await evaluated(running, **asked))[0] == "ALLOW"
        await fetched(running, TELLER)
        assert await evaluated(running, **asked) == ("ALLOW", ["DENY"])
        # A role that neither set has is denied by both, once it is known that they don't.
        asked["agent_role"] = "made-up"
        assert (await evaluated(running, **asked))[0] == "DENY"
        await fetched(running, "made-up")
        assert await evaluated(running, **asked) == ("DENY", [])


@pytest.mark.deep(stands_in="test_a_document_that_is_lost_in_redis_fails_no_decision")
async def test_no_decision_waits_for_a_document_that_does_not_arrive(tmp_path: Path) -> None:
    async with following(tmp_path) as (control, running):
        candidate = document_field(candidate_name("closed", ROLE))
        control.redis.hdel(set_key(control.tenant_id), candidate)
        control.feeds = False
        # The role's own document is fetched while the candidate's can't be.
        assert await evaluated(running) == ("ALLOW", ["ERROR"])
        control.server.signal(signal.SIGSTOP)
        try:
            # A fetch would take a second and more: longer than all of these together.
            async with asyncio.timeout(20):
                for _ in range(100):
                    assert (await running.evaluate())["decision"] == "ALLOW"
            decided = await running.records()
            assert {each["pub"]["candidates"][0]["decision"] for each in decided} == {"ERROR"}
        finally:
            control.server.signal(signal.SIGCONT)
        control.feeds = True

        async def differs() -> bool:
            return (await evaluated(running))[1] == ["DENY"]

        await until_async("the candidate decides again", differs)


async def test_a_document_that_is_lost_in_redis_fails_no_decision(tmp_path: Path) -> None:
    async with following(tmp_path) as (control, running):
        lost = document_field(candidate_name("closed", TELLER))
        control.redis.hdel(set_key(control.tenant_id), lost)
        control.feeds = False
        asked = {"agent_role": TELLER, "agent_id": None}
        # The role's own document is fetched while the candidate's can't be.
        assert await evaluated(running) == ("ALLOW", ["ERROR"])
        assert await evaluated(running, **asked) == ("ALLOW", ["ERROR"])
        await fetched(running, ROLE)
        assert await evaluated(running) == ("ALLOW", ["DENY"])
        assert await evaluated(running, **asked) == ("ALLOW", ["ERROR"])
        # The control API still has it.
        control.feeds = True
        for _ in range(600):
            if (await evaluated(running, **asked))[1] == ["DENY"]:
                return
            await asyncio.sleep(0.05)
        pytest.fail("the candidate's document never came")


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_never_met_redis.py::test_a_sidecar_that_never_met_redis_follows_the_control_api_in_everything"
)
async def test_candidates_follow_the_control_api_without_redis(tmp_path: Path) -> None:
    async with following(tmp_path) as (control, running):
        await evaluated(running)
        await fetched(running, ROLE)
        control.pushes = False
        control.server.signal(signal.SIGKILL)
        await until_async(
            "it follows the control API", lambda: running.parts.follower.feed == "control"
        )
        world = TenantWithCandidates(ACTIVE, {"closed": ACTIVE})
        world.publish(control)
        await caught_up(running, control)
        assert await evaluated(running) == ("ALLOW", [])
        world.candidates = {}
        world.publish(control)
        await caught_up(running, control)
        assert await evaluated(running) == ("ALLOW", [])
        world.candidates = {"closed": CLOSED}
        world.publish(control)
        await caught_up(running, control)
        assert await evaluated(running) == ("ALLOW", ["DENY"])


@pytest.mark.deep(stands_in="test_a_missing_document_is_an_error_until_it_is_fetched")
async def test_a_role_that_an_agent_invents_is_no_difference(tmp_path: Path) -> None:
    async with following(tmp_path) as (_, running):
        for number in range(50):
            asked = {"agent_role": f"made-up-{number}", "agent_id": None}
            assert (await evaluated(running, **asked))[0] == "DENY"
        await fetched(running, "made-up-49")
        # Neither set has the role, so both deny alike.
        assert await evaluated(running, agent_role="made-up-49", agent_id=None) == ("DENY", [])
