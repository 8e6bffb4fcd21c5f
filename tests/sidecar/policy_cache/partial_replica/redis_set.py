"""A policy set in a real Redis, and what a sidecar makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.redis import running_redis
from tests.support.sidecar import RunningSidecar
from tests.support.waiting import until_async

LIMIT = 4.0


@asynccontextmanager
async def fake_control_api_with_redis(
    tmp_path: Path, **options: str
) -> AsyncIterator[FakeControlApiWithRedis]:
    with running_redis(tmp_path / "redis", **options) as server:
        control = FakeControlApiWithRedis(server)
        await control.start()
        try:
            yield control
        finally:
            await control.stop()


def held_documents(running: RunningSidecar) -> dict[str, str]:
    """The digest of each document that the sidecar holds."""
    rows = running.parts.cache_file.connection.execute("SELECT name, digest FROM held")
    return dict(rows.fetchall())


def revision(running: RunningSidecar) -> int:
    return running.parts.replica.policy_set.revision


async def caught_up(running: RunningSidecar, control: FakeControlApiWithRedis) -> None:
    await until_async("the change is in force", lambda: revision(running) == control.revision)


async def allowed(running: RunningSidecar, **changed: Any) -> bool:
    return bool((await running.evaluate(**changed))["decision"] == "ALLOW")
