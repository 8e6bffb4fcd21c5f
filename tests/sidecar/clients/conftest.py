"""One sidecar for each test, on each way, on the event loop that the sidecar itself runs on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from tests.runner import tiers
from tests.sidecar.clients.client_setup import WAYS, ClientSetup, client_setup


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test runs on the ways that it names, else on those of its class, else on `WAYS`:
    in the gate on one of them, which its name decides."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "setup" in metafunc.fixturenames and not any(mark.args[0] == "setup" for mark in marks):
        ways = tiers.one_of(getattr(metafunc.cls, "ways", WAYS), metafunc.definition.nodeid)
        metafunc.parametrize("setup", ways, indirect=True)


@pytest.fixture
async def setup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ClientSetup]:
    async with client_setup(tmp_path, request.param) as made:
        yield made
