"""Keeps what a test needs open on an event loop of its own, for tests that are no coroutines.

Hypothesis calls plain functions, a few hundred times each, so they share one loop and one listener.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import TypeVar

import uvloop

from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import RunningSidecar, running_sidecar

Made = TypeVar("Made")
RunnerAndSidecar = tuple[asyncio.Runner, RunningSidecar]


@contextmanager
def kept_open(
    set_up: Callable[[Path], AbstractAsyncContextManager[Made]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Iterator[tuple[asyncio.Runner, Made]]:
    """Enter what `set_up` makes of a new folder; the runner runs its coroutines."""
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        stack = AsyncExitStack()
        made = runner.run(stack.enter_async_context(set_up(Path(folder))))
        yield runner, made
        runner.run(stack.aclose())


def sidecar_with_runner() -> AbstractContextManager[RunnerAndSidecar]:
    """A sidecar of a fake control API that has a tenant."""
    return kept_open(_sidecar, uvloop.new_event_loop)


@asynccontextmanager
async def _sidecar(folder: Path) -> AsyncIterator[RunningSidecar]:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(folder, control) as started:
            yield started
