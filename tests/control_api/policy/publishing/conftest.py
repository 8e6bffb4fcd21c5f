"""A control API that publishes to a Redis of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_api.policy.publishing.reader import Reader
from tests.support import redis
from tests.support.control_api import ControlApi, running_control_api
from tests.support.redis import running_redis


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[redis.Redis]:
    with running_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def publishing(tmp_path: Path, redis_server: redis.Redis) -> Iterator[ControlApi]:
    with running_control_api(tmp_path, SLUICE_REDIS_URL=redis_server.url) as started:
        yield started


@pytest.fixture(scope="module")
def shared_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Of a control API and a Redis that a module's tests share: each leaves what the store says."""
    directory = tmp_path_factory.mktemp("publishing")
    with (
        running_redis(directory / "redis") as server,
        running_control_api(directory, SLUICE_REDIS_URL=server.url) as started,
    ):
        yield Reader(started, server)


@pytest.fixture
def reader(publishing: ControlApi, redis_server: redis.Redis) -> Reader:
    return Reader(publishing, redis_server)
