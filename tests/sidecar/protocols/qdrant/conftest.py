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
    made = Server()
    for name in ("open_docs", "open_more", "shut_docs"):
        made.create(name, "low", "high")
    made.alias("open_alias", "shut_docs")
    made.alias("docs", "open_docs")
    return made


@pytest.fixture
async def front(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "qdrant", scripted(server.answer), OPEN) as made:
        yield made
