"""A running control API and sidecar for each story; some stories run with and without Redis."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import redis
from tests.support.redis import running_redis
from tests.support.stack import Stack, running_stack


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path) as started:
        yield started


@pytest.fixture(params=["http", pytest.param("redis", marks=redis.needs_redis)])
def either_way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    """The policy set arrives by long poll, or through a real Redis."""
    if request.param == "http":
        with running_stack(tmp_path) as started:
            yield started
        return
    with (
        running_redis(tmp_path / "redis") as server,
        running_stack(tmp_path / "stack", redis_url=server.url) as started,
    ):
        yield started
