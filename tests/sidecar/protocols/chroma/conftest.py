"""A Chroma server for the run, and a listener in front of it for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.chroma.front import Front, fronting
from tests.sidecar.protocols.chroma.server import running_chroma


@pytest.fixture(scope="session")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Chroma server for this run."""
    with running_chroma(tmp_path_factory.mktemp("chroma")) as port:
        yield port


@pytest.fixture
async def front(chroma: int, tmp_path: Path) -> AsyncIterator[Front]:
    async with fronting(chroma, tmp_path) as made:
        yield made


@pytest.fixture
async def writing(chroma: int, tmp_path: Path) -> AsyncIterator[Front]:
    """The same with `writes: allow`."""
    async with fronting(chroma, tmp_path, writes="allow") as made:
        yield made
