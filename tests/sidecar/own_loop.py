"""A sidecar and the runner of its loop, for tests that are no coroutines, as with hypothesis."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import uvloop

from tests.sidecar.fake_control_api import fake_control_api
from tests.sidecar.running_sidecar import RunningSidecar, sidecar

Running = tuple[asyncio.Runner, RunningSidecar]


@contextmanager
def sidecar_with_runner() -> Iterator[Running]:
    """Its control API is a fake one, with a tenant."""
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        stack = AsyncExitStack()

        async def start() -> RunningSidecar:
            control = await stack.enter_async_context(fake_control_api())
            control.create_tenant()
            return await stack.enter_async_context(sidecar(Path(folder), control))

        yield runner, runner.run(start())
        runner.run(stack.aclose())
