"""A running sidecar, and what is between it and its control API: HTTP alone, or Redis too. Most
suites run over both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_control_api, redis
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.loop_clock import LoopClock, moving_clock
from tests.support.redis import running_redis
from tests.support.sidecar import FaultyDisk, RunningSidecar, running_sidecar

BOTH = (
    "test_agent_listing",
    "test_candidates",
    "test_enforce",
    "test_key_files",
    "test_live_keys",
    "test_masking",
    "test_readable",
    "test_recorder",
    "test_search",
    "test_serve",
    "test_sessions",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in BOTH:
        # First: the other fixtures start the control API that this one chooses.
        metafunc.fixturenames.insert(0, "feed")
        feeds = ["http", pytest.param("redis", marks=redis.needs_redis)]
        metafunc.parametrize("feed", feeds, indirect=True)


@pytest.fixture
def feed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """What `fake_control_api()` gives: one with HTTP alone, or one that also publishes to Redis."""
    if request.param == "http":
        yield "http"
        return
    with running_redis(tmp_path / "redis") as server:
        monkeypatch.setattr(
            fake_control_api, "FakeControlApi", lambda: FakeControlApiWithRedis(server)
        )
        yield "redis"


@pytest.fixture
async def control() -> AsyncIterator[fake_control_api.FakeControlApi]:
    """A control API with a tenant that has a policy, an agent and keys."""
    async with fake_control_api.fake_control_api() as started:
        started.create_tenant()
        yield started


@pytest.fixture
def disk() -> FaultyDisk:
    """The disk of `sidecar`."""
    return FaultyDisk()


@pytest.fixture
def sidecar_settings() -> dict[str, Any]:
    """The settings of `sidecar` that differ from the usual ones; a test file may replace it."""
    return {}


@pytest.fixture
async def sidecar(
    tmp_path: Path,
    control: fake_control_api.FakeControlApi,
    disk: FaultyDisk,
    sidecar_settings: dict[str, Any],
) -> AsyncIterator[RunningSidecar]:
    """A sidecar of `control` that has its policy set."""
    async with running_sidecar(tmp_path, control, disk=disk, **sidecar_settings) as started:
        yield started


@pytest.fixture
async def clock() -> AsyncIterator[LoopClock]:
    """The clock of the test's event loop."""
    with moving_clock() as moved:
        yield moved
