"""Fixtures: a migrated database of each kind, and a world on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.open_store import OpenStore, opened
from tests.support.postgres import serving


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/data/sluice.db"


@pytest.fixture
def postgresql_url(migrated_url: str) -> str:
    """Connects as the service's role, which owns no table."""
    return serving(migrated_url)


@pytest.fixture(params=["sqlite", "postgresql"])
def either_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def world(either_url: str) -> AsyncIterator[OpenStore]:
    async with opened(either_url) as made:
        yield made
