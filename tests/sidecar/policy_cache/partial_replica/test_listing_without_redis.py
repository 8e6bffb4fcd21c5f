"""The listing of all agents where Redis is away, or holds other than what was signed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from policies.definitions.model import Agent
from policies.sets.merkle_map import path
from policies.sets.policy_set import agent_document, agent_name
from policies.sets.redis_keys import document_field, node_field, set_key
from sidecar.policy_cache.agent_documents import ListingInterrupted
from sidecar.policy_cache.document_fetcher import FetchFailed
from tests.sidecar.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.sidecar.policy_cache.partial_replica.redis_set import running_control_api
from tests.sidecar.policy_cache.test_agent_listing import everyone, listed
from tests.sidecar.running_sidecar import RunningSidecar, sidecar
from tests.support import redis

pytestmark = redis.needs_redis


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[FakeControlApiWithRedis]:
    async with running_control_api(tmp_path) as started:
        started.create_tenant()
        yield started


@pytest.fixture
async def running(
    tmp_path: Path, control: FakeControlApiWithRedis
) -> AsyncIterator[RunningSidecar]:
    async with sidecar(tmp_path, control) as started:
        yield started


async def test_without_redis_the_control_api_lists(
    running: RunningSidecar, control: FakeControlApiWithRedis
) -> None:
    expected = await everyone(control, running)
    control.redis.delete(set_key("default"))
    with pytest.raises(ListingInterrupted):
        await listed(running)
    assert await listed(running) == expected


@pytest.mark.parametrize("part", ["node", "document", "forged"])
async def test_what_redis_withholds_or_changes_is_noticed(
    running: RunningSidecar, control: FakeControlApiWithRedis, part: str
) -> None:
    expected = await everyone(control, running)
    name = agent_name("agt_0007")
    if part == "node":
        control.redis.hdel(set_key("default"), node_field(path(name)[1]))
    elif part == "document":
        control.redis.hdel(set_key("default"), document_field(name))
    else:
        forged = agent_document(Agent("agt_0007", "approved", ("admin",)))
        control.redis.hset(set_key("default"), document_field(name), forged)
    with pytest.raises(ListingInterrupted):
        await listed(running)
    assert await listed(running) == expected
    # And with the control API away, too, there is no list rather than half of one.
    control.feeds = False
    with pytest.raises(ListingInterrupted):
        await listed(running)
    with pytest.raises(FetchFailed):
        await listed(running)
