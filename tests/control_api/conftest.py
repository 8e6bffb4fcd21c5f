"""Running control APIs, for tests that share one and for those that need their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_api.running_api import ControlApi, running
from tests.postgres import serving


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """Shared by a module's tests: none may depend on what is not there."""
    with running(tmp_path_factory.mktemp("api")) as started:
        yield started


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ControlApi]:
    """A test's own, just after its first start."""
    with running(tmp_path) as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlApi]:
    """A test's own, once on each database."""
    url = None
    if request.param == "postgresql":
        url = serving(request.getfixturevalue("migrated_url"))
    with running(tmp_path, database_url=url) as started:
        yield started
