"""A listener in front of a minimal Qdrant (`server.py`), whose agent may read names that begin with
`open`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.qdrant.front import OPEN
from tests.sidecar.protocols.qdrant.server import Server


@pytest.fixture
def server() -> Server:
    server = Server()
    for name in ("open_docs", "open_more", "shut_docs"):
        server.create(name, "low", "high")
    server.alias("open_alias", "shut_docs")
    server.alias("docs", "open_docs")
    return server


@pytest.fixture
async def front(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "qdrant", scripted(server.answer), OPEN) as front:
        yield front
