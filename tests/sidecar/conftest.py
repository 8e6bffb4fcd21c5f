"""Between a sidecar and its control API: HTTP alone, or Redis too. Most suites run over both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import redis
from tests.sidecar import fake_control_api
from tests.sidecar.fake_control_api_with_redis import FakeControlApiWithRedis

BOTH = ("test_enforce", "test_sessions", "test_masking", "test_readable", "test_serve")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in BOTH:
        metafunc.fixturenames.append("feed")
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
    with redis.running(tmp_path / "redis") as server:
        monkeypatch.setattr(
            fake_control_api, "FakeControlApi", lambda: FakeControlApiWithRedis(server)
        )
        yield "redis"
