"""The property of `test_spellings.py` over all the other ways in: what arrives is what was decided
about."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.sidecar.proxy import test_spellings
from tests.sidecar.proxy.other_ways_in import WAYS, detour
from tests.sidecar.proxy.proxy_setup import ProxySetup, policy

test_what_arrives_is_what_was_judged = test_spellings.test_what_arrives_is_what_was_judged


@pytest.fixture(scope="module", params=WAYS)
def running(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, ProxySetup]]:
    shut = policy(denied_sources=("rest://kb/secret", "rest://kb/secret/*", "rest://kb/*/secret*"))
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> ProxySetup:
            return await stack.enter_async_context(detour(Path(folder), request.param, shut))

        yield runner, runner.run(enter())
        runner.run(stack.aclose())
