"""One sidecar for each test, on each way, on the event loop that the sidecar itself runs on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from tests.sidecar.clients.stand import WAYS, Stand, standing


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test runs on the ways that it names, else on those of its class, else on `WAYS`."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "stand" in metafunc.fixturenames and not any(mark.args[0] == "stand" for mark in marks):
        ways = getattr(metafunc.cls, "ways", WAYS)
        metafunc.parametrize("stand", ways, indirect=True)


@pytest.fixture
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stand]:
    async with standing(tmp_path, request.param) as made:
        yield made
