"""A listener over a real enforcer in front of a scripted data source, on both event loops, which
differ in how a connection ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from tests.support.proxy import ProxySetup, policy, proxy_setup


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ProxySetup]:
    """Reads of everything are allowed but of `/secret`, and writes are."""
    closed = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*"))
    async with proxy_setup(tmp_path, closed, writes="allow") as made:
        yield made
