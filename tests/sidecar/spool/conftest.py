"""A spool that was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sidecar.spool.running_spool import keep, running_spool


@pytest.fixture
async def stopped_spool(tmp_path: Path) -> Path:
    """A spool that was stopped with five records in one segment."""
    root = tmp_path / "spool"
    async with running_spool(root) as spool:
        await keep(spool, *range(5))
    return root
