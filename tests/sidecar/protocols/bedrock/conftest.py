"""A listener in front of a minimal Bedrock that streams without waiting."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.bedrock.front import Front, fronting


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with fronting(tmp_path) as made:
        made.script.going.set()
        yield made
