"""A Chroma server for the run, and a listener in front of it for each test."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.sidecar.protocols.chroma.front import Front, direct, fronting
from tests.support.ports import free_port
from tests.support.waiting import until


@pytest.fixture(scope="session")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Chroma server for this run."""
    folder = tmp_path_factory.mktemp("chroma")
    port = free_port()
    command = [
        str(Path(sys.executable).parent / "chroma"), "run",
        "--path", str(folder / "data"), "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "ANONYMIZED_TELEMETRY": "false"}
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            direct(port, "GET", "/api/v2/heartbeat")
            return True

        until("Chroma answers", answers, despite=OSError)
        yield port
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
async def front(chroma: int, tmp_path: Path) -> AsyncIterator[Front]:
    async with fronting(chroma, tmp_path) as made:
        yield made


@pytest.fixture
async def writing(chroma: int, tmp_path: Path) -> AsyncIterator[Front]:
    """The same with `writes: allow`."""
    async with fronting(chroma, tmp_path, writes="allow") as made:
        yield made
