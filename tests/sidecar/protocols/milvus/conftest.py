"""Listeners in front of a minimal Milvus: one without document levels, one with them. The agent of
the first may read the collections of the default database whose names begin with `open`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.milvus.front import LEVELS, MARKED, OPEN, READERS
from tests.sidecar.protocols.milvus.server import Server
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "milvus", scripted(Server("low").answer), OPEN) as made:
        yield made


@pytest.fixture
async def marked(tmp_path: Path) -> AsyncIterator[Minimal]:
    server = scripted(Server(*LEVELS).answer)
    async with minimal(tmp_path, "milvus", server, READERS, **MARKED) as made:
        yield made
