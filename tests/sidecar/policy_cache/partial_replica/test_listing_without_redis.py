"""The listing of all agents where Redis is away, or holds other than what was signed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from policies.definitions.model import Agent
from policies.sets.merkle_map import path
from policies.sets.policy_set import agent_document, agent_name
from policies.sets.redis_keys import document_field, node_field, set_key
from sidecar.policy_cache.policy_view import FetchFailed, ListingInterrupted
from tests.sidecar.policy_cache.partial_replica.redis_set import fake_control_api_with_redis
from tests.sidecar.policy_cache.test_agent_listing import everyone, listed
from tests.support import redis
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.sidecar import RunningSidecar

pytestmark = redis.needs_redis


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[FakeControlApiWithRedis]:
    async with fake_control_api_with_redis(tmp_path) as started:
        started.create_tenant()
        yield started


async def test_without_redis_the_control_api_lists(
    sidecar: RunningSidecar, control: FakeControlApiWithRedis
) -> None:
    expected = await everyone(control, sidecar)
    control.redis.delete(set_key("default"))
    with pytest.raises(ListingInterrupted):
        await listed(sidecar)
    assert await listed(sidecar) == expected


@pytest.mark.parametrize("part", ["node", "document", "forged"])
async def test_a_document_withheld_or_changed_by_redis_is_noticed(
    sidecar: RunningSidecar, control: FakeControlApiWithRedis, part: str
) -> None:
    expected = await everyone(control, sidecar)
    name = agent_name("agt_0007")
    if part == "node":
        control.redis.hdel(set_key("default"), node_field(path(name)[1]))
    elif part == "document":
        control.redis.hdel(set_key("default"), document_field(name))
    else:
        forged = agent_document(Agent("agt_0007", "approved", ("admin",)))
        control.redis.hset(set_key("default"), document_field(name), forged)
    with pytest.raises(ListingInterrupted):
        await listed(sidecar)
    assert await listed(sidecar) == expected
    # And with the control API away, too, there is no list rather than half of one.
    control.feeds = False
    with pytest.raises(ListingInterrupted):
        await listed(sidecar)
    with pytest.raises(FetchFailed):
        await listed(sidecar)
