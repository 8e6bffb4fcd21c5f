"""When a partial replica turns to the control API and back, by loops that do nothing but run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.partial_replica.failover import Failover
from tests.sidecar.spool.running_spool import CLOCK
from tests.support.waiting import turns, until_async


class Source:
    """What is followed while `run` runs: Redis, or the control API."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.problem: str | None = None
        self.healthy = True
        self.confirmed = asyncio.Event()
        self.confirmed_at = CLOCK.monotonic()
        self.reads: list[set[str]] = []

    async def fetch(self, names: Iterable[str]) -> None:
        self.reads.append(set(names))
        await turns()

    async def run(self) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def claim(self, _session_id: str) -> None:
        await asyncio.Event().wait()

    def confirm(self) -> None:
        self.confirmed_at = CLOCK.monotonic()
        self.confirmed.set()


def failover_of(limit: float) -> tuple[Failover, Any, Any]:
    redis: Any = Source()
    control: Any = Source()
    return Failover(redis, control, Freshness(limit, CLOCK), CLOCK), redis, control


async def test_the_control_api_is_followed_whenever_redis_is_silent_until_it_confirms() -> None:
    failover, redis, control = failover_of(0.1)
    running = asyncio.create_task(failover.run())
    try:
        for turn in range(1, 4):
            await until_async("it follows", lambda n=turn: control.begun == n)  # type: ignore[misc]
            assert failover.feed == "control"
            redis.confirm()
            await until_async("it is back", lambda n=turn: control.ended == n)  # type: ignore[misc]
    finally:
        running.cancel()
    assert (redis.begun, redis.ended) == (1, 0)


async def test_concurrent_lookups_are_combined_into_one_read() -> None:
    failover, redis, _ = failover_of(10)
    names = {f"key/{number}" for number in range(100)}
    for apart in (False, True):
        redis.reads.clear()
        async with asyncio.TaskGroup() as group:
            for name in sorted(names):
                group.create_task(failover.fetch([name], apart=apart))
        # The first is already reading when the others come.
        assert len(redis.reads) == 2
        assert set().union(*redis.reads) == names


async def test_a_claim_that_redis_does_not_answer_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sidecar.policy_cache.partial_replica.failover.REDIS_SECONDS", 0.01)
    failover, redis, _ = failover_of(10)
    assert await failover.claim("s-1") is None
    assert not redis.healthy
    assert await failover.claim("s-1") is None, "it is not even asked"
