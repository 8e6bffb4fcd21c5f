"""Keeps tasks that no request waits for until they are done, so that a denial is recorded even if
the agent is gone."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class BackgroundTasks:
    """The tasks of one port."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        # The event loop holds only weak references to its tasks.
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self, seconds: float) -> None:
        """Waits up to `seconds` for the tasks, then cancels those that are left."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = set(self._tasks)
        # A cancelled task still has clean-up to run: a tunnel notes its lineage there.
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a connection failed", exc_info=task.exception())
