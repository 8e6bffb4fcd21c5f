"""Runs a coroutine at once, in the same turn of the event loop, and cancels work when the client
that it is done for leaves.

As long as a coroutine has nothing to wait for, it needs no task. When it waits for the first time,
it goes on as a task. The event loop of Python 3.12 can do this by itself; this works in 3.11 too.

Before that task exists, `asyncio.timeout` and `asyncio.current_task` don't work: a coroutine that
needs them calls `within_task` first, so that the task exists.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any


class _Rest(Coroutine[Any, Any, None]):
    """The rest of a coroutine that has stopped to wait for `awaited`. This object is itself a
    coroutine that counts as begun, so that a cancellation before the first step of its task still
    reaches the coroutine inside."""

    __slots__ = ("_awaited", "_begun", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        self._begun = False

    def send(self, value: Any) -> Any:
        if self._begun:
            return self._coroutine.send(value)
        self._begun = True
        return self._awaited

    def throw(self, *error: Any) -> Any:
        if not self._begun:
            self._begun = True
            # The task doesn't know yet what it would wait for, so it can't cancel that itself.
            if isinstance(self._awaited, asyncio.Future):
                self._awaited.cancel()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError


class _Running:
    """The state of the coroutine that runs in this process now. There is one such state, since only
    one thread has an event loop."""

    __slots__ = ("at_once",)

    def __init__(self) -> None:
        self.at_once = False
        """True while a coroutine runs that has not waited yet. `current_task() is None` would not
        tell that: the code that started the coroutine may itself run in a task."""


_running = _Running()


def start(
    coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
) -> "asyncio.Task[None] | None":
    """Run `coroutine` until it ends, and return None; or until it waits for the first time, and
    return the task of `loop`, the running event loop, that continues it. An error before the first
    wait is raised here."""
    # A context of its own, so that a variable that it sets before it waits is still set afterwards,
    # and can be reset.
    context = copy_context()
    around, _running.at_once = _running.at_once, True
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration:
        return None
    finally:
        _running.at_once = around
    return loop.create_task(_Rest(coroutine, awaited), context=context)


async def within_task() -> None:
    """Return inside a task of the calling coroutine's own: at once if it has waited before,
    otherwise in the next turn of the event loop."""
    if _running.at_once:
        await asyncio.sleep(0)


Watch = Callable[[Callable[[], None]], None]
"""A function that takes a callback, and calls it, perhaps more than once, if the client leaves
before it was answered."""


def unwatched(_on_left: Callable[[], None]) -> None:
    """Do nothing: the `Watch` for a client that never leaves."""


class Departed(Exception):
    """the client left"""


@asynccontextmanager
async def until_departed(watch: Watch) -> AsyncIterator[None]:
    """Cancel the block when the client leaves, and raise `Departed`. Use this in a task
    (`eager.within_task`), and only around work that may end at any point."""
    loop = asyncio.get_running_loop()
    over = False

    def left() -> None:
        if not (over or limit.expired()):
            limit.reschedule(loop.time())

    limit = asyncio.timeout(None)
    try:
        async with limit:
            watch(left)
            yield
    except TimeoutError:
        if limit.expired():
            raise Departed(Departed.__doc__) from None
        raise
    finally:
        over = True
