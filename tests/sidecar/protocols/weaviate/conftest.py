"""A listener in front of a minimal Weaviate, whose agent may read names that begin with `Open`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.weaviate.front import OPEN
from tests.sidecar.protocols.weaviate.server import Server


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "weaviate", scripted(Server("low").answer), OPEN) as front:
        yield front
