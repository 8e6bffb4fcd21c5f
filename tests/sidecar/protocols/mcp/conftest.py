"""A listener in front of an MCP server that a test scripts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.mcp.wire import (
    Wire,
    wired,
)


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    async with wired(tmp_path) as made:
        yield made
