"""The tenant's levels of sources in a sidecar that holds only what decisions use. With a part of
the new documents it denies: what it lacks or can't read is never taken for no level."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from policies.definitions.model import Sensitivity
from policies.sets.policy_set import role_document, role_name
from policies.sets.redis_keys import document_field, set_key
from policies.sets.source_levels import SOURCES, sources_document
from tests.sidecar.policy_cache.partial_replica.redis_set import (
    caught_up,
    fake_control_api_with_redis,
    held_documents,
)
from tests.support import redis
from tests.support.fake_control_api import ROLE, policy
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until_async

pytestmark = redis.needs_redis

OPEN = policy(allowed_sources=("*",), max_sensitivity="high")


@asynccontextmanager
async def following(
    tmp_path: Path, **stated: Sensitivity
) -> AsyncIterator[tuple[FakeControlApiWithRedis, RunningSidecar]]:
    """A sidecar whose tenant states these levels from the start."""
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant(OPEN)
        if stated:
            control.publish({SOURCES: sources_document(stated)})
        async with running_sidecar(tmp_path, control) as running:
            await caught_up(running, control)
            yield control, running


async def decided(running: RunningSidecar, source_id: str) -> tuple[str, str | None]:
    answer = await running.evaluate(source_id=source_id, sensitivity_level="low")
    return answer["decision"], answer["policy_name"]


async def handbook_passes(running: RunningSidecar) -> bool:
    return await decided(running, "handbook") == ("ALLOW", OPEN.name)


async def test_the_levels_are_fetched_before_the_first_decision(tmp_path: Path) -> None:
    async with following(tmp_path, salaries="critical") as (_, running):
        assert await decided(running, "salaries") == ("DENY", OPEN.name)
        assert SOURCES in held_documents(running)
        assert await decided(running, "handbook") == ("ALLOW", OPEN.name)


async def test_levels_that_redis_has_lost_deny_until_they_return(tmp_path: Path) -> None:
    """The set's tree names the document, its body is gone, and no other replica has it."""
    async with following(tmp_path, salaries="critical") as (control, running):
        field = document_field(SOURCES)
        body = control.redis.hget(set_key(control.tenant_id), field)
        control.feeds = False
        control.redis.hdel(set_key(control.tenant_id), field)
        for source_id in ("salaries", "handbook"):
            assert await decided(running, source_id) == ("DENY", "evaluation_error")
        control.redis.hset(set_key(control.tenant_id), field, body)

        await until_async("the levels are there again", lambda: handbook_passes(running))
        assert await decided(running, "salaries") == ("DENY", OPEN.name)


@pytest.mark.parametrize("written", ["neither", "the levels", "the role"])
async def test_a_change_that_arrived_in_part_allows_nothing_new(
    written: str, tmp_path: Path
) -> None:
    """One revision opens a source in the role and states a level of it. Whichever of the two bodies
    Redis has, and whichever the sidecar holds: the source opens with its level, or not at all."""
    async with following(tmp_path) as (control, running):
        assert await decided(running, "handbook") == ("ALLOW", OPEN.name)
        name, closed = role_name(ROLE), policy(allowed_sources=("handbook",))
        control.publish({name: role_document([closed])})
        await caught_up(running, control)
        assert (await decided(running, "salaries"))[0] == "DENY"
        changes = {name: role_document([OPEN]), SOURCES: sources_document({"salaries": "critical"})}
        lost = {"neither": [name, SOURCES], "the levels": [name], "the role": [SOURCES]}[written]
        since, control.feeds, control.pushes = control.revision, False, False
        control.publish(changes)
        control.push(since, changes, without=lost)
        control.pushes = True
        for _ in range(20):
            assert (await decided(running, "salaries"))[0] == "DENY"
        control.rebuild()
        await until_async("the change is in force", lambda: handbook_passes(running))
        assert await decided(running, "salaries") == ("DENY", OPEN.name)
