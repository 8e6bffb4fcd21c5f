"""Group commit: what many ask for at once is done at once. Knows neither records nor tables.

While one batch of a lane is being committed, the next gathers. A caller that hangs up takes nothing
back: what it handed in is committed with its batch.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from control_api.store.errors import WriteFault
from policies.ground.errors import SluiceError

T = TypeVar("T")
R = TypeVar("R")

MAX_BATCH = 512
"""The most that one transaction takes: bounds how long it holds up what comes after it."""
MAX_WAITING = 8192
"""The most that may wait in a lane. Whoever comes then is told so at once."""


class WriteQueueFull(WriteFault):
    """more is waiting for the database than it takes at the moment"""


class GroupCommit(Generic[T, R]):
    """`commit(lane, items)` makes a batch durable and answers in the items' order, with an error in
    the place of an item that was refused by itself. What it raises is the answer to all of them."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        commit: Callable[[str, list[T]], Awaitable[list[R | SluiceError]]],
    ) -> None:
        self._group = group
        self._commit = commit
        self._lanes: dict[str, deque[tuple[T, asyncio.Future[R]]]] = {}

    async def submit(self, lane: str, item: T) -> R:
        """The answer to `item`, once its batch is committed."""
        waiting = self._lanes.get(lane)
        if waiting is None:
            waiting = deque()
            start_task(self._group, self._drain(lane, waiting))
            self._lanes[lane] = waiting
        elif len(waiting) >= MAX_WAITING:
            raise WriteQueueFull
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        waiting.append((item, answer))
        return await answer

    async def _drain(self, lane: str, waiting: deque[tuple[T, asyncio.Future[R]]]) -> None:
        """Until nothing waits. A lane costs nothing while it is quiet."""
        try:
            while waiting:
                batch = [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]
                answers = [answer for _, answer in batch]
                try:
                    results = await self._commit(lane, [item for item, _ in batch])
                except Exception as error:  # noqa: BLE001  each caller raises it
                    _fail(answers, error)
                except BaseException:
                    _fail(answers, WriteFault())
                    raise
                else:
                    # The batch is on the disk. If we die here, the callers never learn it.
                    _answer(answers, results)
        finally:
            del self._lanes[lane]
            _fail([answer for _, answer in waiting], WriteFault())


def start_task(group: asyncio.TaskGroup, task: Coroutine[Any, Any, None]) -> None:
    """`WriteFault` where the service is stopping."""
    try:
        group.create_task(task)
    except RuntimeError as error:
        task.close()
        raise WriteFault("the service is stopping") from error


def _answer(answers: list[asyncio.Future[R]], results: list[R | SluiceError]) -> None:
    for answer, result in zip(answers, results, strict=True):
        if answer.done():  # its caller hung up
            continue
        if isinstance(result, SluiceError):
            answer.set_exception(result)
        else:
            answer.set_result(result)


def _fail(answers: list[asyncio.Future[R]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
