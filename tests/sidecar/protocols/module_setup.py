"""A set-up that lasts for a whole module. Hypothesis calls plain functions, a few hundred times
each, so they share one event loop and one listener."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")


@contextmanager
def kept_open(
    set_up: Callable[[Path], AbstractAsyncContextManager[Made]],
) -> Iterator[tuple[asyncio.Runner, Made]]:
    """What `set_up` makes of a new folder, and the loop to run its coroutines in."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        made = runner.run(stack.enter_async_context(set_up(Path(folder))))
        yield runner, made
        runner.run(stack.aclose())
