"""Listeners in front of a minimal Pinecone: one without document levels, one with them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.pinecone.front import (
    LEVELS,
    MARKED,
    OPEN,
    READERS,
)
from tests.sidecar.protocols.pinecone.grpc_front import Called, in_front_of_calls
from tests.sidecar.protocols.pinecone.server import Server


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "pinecone", scripted(Server("low").answer), OPEN) as made:
        yield made


@pytest.fixture
async def marked(tmp_path: Path) -> AsyncIterator[Minimal]:
    server = scripted(Server(*LEVELS).answer)
    async with minimal(tmp_path, "pinecone", server, READERS, **MARKED) as made:
        yield made


@pytest.fixture
async def called(tmp_path: Path) -> AsyncIterator[Called]:
    async with in_front_of_calls(tmp_path, Server("low"), OPEN) as made:
        yield made
