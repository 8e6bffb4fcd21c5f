"""One call for several tasks that want its result. Knows nothing of what is called."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Runs `call` in a task of its own: a task that is cancelled while it waits leaves the call to
    the others. When the last one has left, the call is cancelled."""

    __slots__ = ("_task", "_waiting")

    def __init__(self, call: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.get_running_loop().create_task(call)
        self._waiting = 0

    @property
    def awaited(self) -> bool:
        """Whether a task waits for the result. If none does any more, none may begin to."""
        return self._waiting > 0

    async def result(self) -> T:
        """What the call returns. Raises what it raises."""
        self._waiting += 1
        try:
            # Not `await self._task`, which would pass on a cancellation of this waiter.
            await asyncio.wait((self._task,))
            return self._task.result()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._task.cancel()
