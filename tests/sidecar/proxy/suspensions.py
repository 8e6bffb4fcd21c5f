"""Counts how often the tasks of the code under test stop to wait, and does something at one of
those points: so that a test can go through all of them, one run after the other."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Self


class Suspensions:
    """As a context: after the `at`-th time that a task waits which was made within it by the code
    under test, calls `then` in the next turn of the loop. Tasks of tests and of asyncio's own
    streams don't count."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        self._left = at
        self._then = then
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        self._loop.set_task_factory(self._task)
        if not self._left:
            self._loop.call_soon(self._then)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.set_task_factory(None)

    @property
    def reached(self) -> bool:
        """Whether there were as many."""
        return self._left <= 0

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._loop.call_soon(self._then)

    def _task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any
    ) -> "asyncio.Task[Any]":
        counted = coroutine if _is_of_a_test(coroutine) else _Counted(coroutine, self.count)
        return asyncio.Task(counted, loop=loop, **more)


def _is_of_a_test(coroutine: Any) -> bool:
    code = getattr(coroutine, "cr_code", None)
    name = "" if code is None else code.co_filename
    return "/tests/" in name or "/asyncio/" in name


class _Counted(Coroutine[Any, Any, Any]):
    def __init__(self, coroutine: Coroutine[Any, Any, Any], count: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._count = count

    def send(self, value: Any) -> Any:
        awaited = self._coroutine.send(value)
        self._count()
        return awaited

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None) -> Any:
        awaited = self._coroutine.throw(kind if value is None else value)
        self._count()
        return awaited

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError
