"""Each test of checkpoints runs on both databases unless it names one."""

from pathlib import Path

import pytest

from tests.control_api.store.databases import either_url, postgresql_url, sqlite_url, world

__all__ = ["either_url", "notes", "postgresql_url", "sqlite_url", "world"]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The directory of the checkpoint store."""
    return tmp_path / "notes"
