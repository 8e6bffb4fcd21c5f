"""A listener in front of a minimal OpenSearch with the names of `front.py`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.minimal import Minimal
from tests.sidecar.protocols.opensearch.front import fronting, named_server


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    async with fronting(tmp_path, named_server()) as front:
        yield front
