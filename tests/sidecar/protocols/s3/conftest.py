"""An S3 server for the run, and a listener in front of it for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.s3.front import S3Front, s3_fronting
from tests.sidecar.protocols.s3.moto_server import running_moto


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 server for this run."""
    with running_moto(tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


@pytest.fixture
async def front(moto: int, tmp_path: Path) -> AsyncIterator[S3Front]:
    async with s3_fronting(moto, tmp_path) as made:
        yield made


@pytest.fixture
async def writing(moto: int, tmp_path: Path) -> AsyncIterator[S3Front]:
    """The same with `writes: allow`."""
    async with s3_fronting(moto, tmp_path, writes="allow") as made:
        yield made
