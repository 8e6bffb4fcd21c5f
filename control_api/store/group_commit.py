"""Group commit: concurrent requests share a transaction. Knows neither records nor tables.

While one batch of a lane (the queue of writes that must be ordered) is being committed, the next
one collects. Cancelling a caller does not withdraw its item: the item is still committed with its
batch.
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
"""The most items in one transaction. The limit bounds how long later items wait for it."""
MAX_WAITING = 8192
"""The most items that may wait in one lane. Further items are refused at once."""
HALVED = 128
"""If at least this many items wait for a lane's first batch, only half of them go into it, so that
the others can be prepared meanwhile (`prepare`)."""


class WriteQueueFull(WriteFault):
    """too many writes are waiting for the database; try again later"""


class GroupCommit(Generic[T, R]):
    """Collects the items of concurrent callers into batches, and commits one batch of a lane at a
    time.

    `commit(lane, items)` makes a batch durable and returns one result per item, in order: the
    answer, or the error that refused just that item. An exception from `commit` goes to every
    caller of the batch.

    `prepare(lane, item, place)` may do part of an item's work while the batch before its own is
    being committed; `place` is its place in the queue. If all of many callers waited for one batch,
    nothing would be left to prepare meanwhile. So a lane's first batch then takes half of its
    items, and from there on one half is committed while the other is prepared.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        commit: Callable[[str, list[T]], Awaitable[list[R | SluiceError]]],
        prepare: Callable[[str, T, int], None] | None = None,
    ) -> None:
        self._group = group
        self._commit = commit
        self._prepare = prepare
        self._lanes: dict[str, deque[tuple[T, asyncio.Future[R]]]] = {}

    async def submit(self, lane: str, item: T) -> R:
        """Queue `item`, and return its result once its batch is committed. Raises `WriteQueueFull`
        if too many items wait, and the error that refused the item."""
        waiting = self._lanes.get(lane)
        if waiting is None:
            waiting = deque()
            # The task runs only after this function has awaited, so it finds the item below.
            start_task(self._group, self._drain(lane, waiting))
            self._lanes[lane] = waiting
        elif len(waiting) >= MAX_WAITING:
            # A database that has stopped would otherwise fill the memory with waiting requests.
            raise WriteQueueFull
        elif self._prepare is not None:
            self._prepare(lane, item, len(waiting))
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        waiting.append((item, answer))
        return await answer

    async def _drain(self, lane: str, waiting: deque[tuple[T, asyncio.Future[R]]]) -> None:
        """Commit batches until the queue is empty. An idle lane has no task and no queue."""
        try:
            many = len(waiting)
            if self._prepare is not None and many >= HALVED:
                many //= 2
            while waiting:
                batch = [waiting.popleft() for _ in range(min(many, MAX_BATCH))]
                answers = [answer for _, answer in batch]
                try:
                    results = await self._commit(lane, [item for item, _ in batch])
                except Exception as error:  # noqa: BLE001  each caller raises it
                    _fail(answers, error)
                except BaseException:
                    _fail(answers, WriteFault())
                    raise
                else:
                    # The batch is on disk. If we die here, the callers never learn of it.
                    _deliver(answers, results)
                many = len(waiting)
        finally:
            # Nothing was awaited since the queue was found empty, so no item can have slipped in.
            # Only if this task was cancelled is the queue not empty; its items were never tried.
            del self._lanes[lane]
            _fail([answer for _, answer in waiting], WriteFault())


def start_task(group: asyncio.TaskGroup, task: Coroutine[Any, Any, object]) -> None:
    """Start a task in the group. Raises `WriteFault` if the service is stopping."""
    try:
        group.create_task(task)
    except RuntimeError as error:  # the group is ending, and takes no further tasks
        task.close()
        raise WriteFault("the service is stopping") from error


def _deliver(answers: list[asyncio.Future[R]], results: list[R | SluiceError]) -> None:
    for answer, result in zip(answers, results, strict=True):
        if answer.done():  # its caller was cancelled
            continue
        if isinstance(result, SluiceError):
            answer.set_exception(result)
        else:
            answer.set_result(result)


def _fail(answers: list[asyncio.Future[R]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
