"""A listener over a real enforcer in front of a scripted data source."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.proxy.stand import Stand, policy, standing


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    """Reads of everything are allowed but of `/secret`, and writes are."""
    closed = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*"))
    async with standing(tmp_path, closed, writes="allow") as made:
        yield made
