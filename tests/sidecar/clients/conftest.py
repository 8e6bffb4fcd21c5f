"""One sidecar for each test, on each way, on the event loop that the sidecar itself runs on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from tests.sidecar.clients.stand import WAYS, Stand, standing


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=WAYS)
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stand]:
    async with standing(tmp_path, request.param) as made:
        yield made
