"""Keeps long computations off the event loop. What walks a body or an answer of more than 64 KiB
runs in one thread beside the loop, so that the loop waits for it by turns (the interpreter switches
threads every 5 ms) and for no more than one call into C at a time.

Such a call holds the interpreter's lock: `bodies.is_crowded` bounds the longest, which is to make a
parsed body's objects. Together the two keep one request from blocking the loop for 100 ms (the
benchmark `blocking` prints the figures).

Knows nothing of what is computed. What runs here may not touch the policy set or the loop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from policies.ground.errors import SluiceError
from sidecar.protocols.messages import FetchedResponse, RoutedRequest

LONGEST_INLINE = 64 * 1024
"""What walks fewer bytes runs on the loop: a thread costs more than it would take."""

P = ParamSpec("P")
T = TypeVar("T")

Fresh = Callable[[], None]
"""Called on the loop right before something runs in the thread: see `Permitting.refresh`."""


def as_it_is() -> None:
    """For a computation that needs nothing from the loop."""


class _Wanted(NamedTuple):
    """A look-up that a coroutine waits for."""

    target: str


class _Done(NamedTuple):
    value: Any


class _Ask:
    """Awaited in place of a look-up: hands the target to `WorkerThread.drive`, and gets the
    answer."""

    __slots__ = ("_target",)

    def __init__(self, target: str) -> None:
        self._target = target

    def __await__(self) -> Generator[_Wanted, FetchedResponse, FetchedResponse]:
        return (yield _Wanted(self._target))


class WorkerThread:
    """One thread for all sources of a sidecar, started when it is first needed. What waits for it
    is bounded by the bodies that the sidecar holds."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "proxy-worker")

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def call(
        self,
        size: int,
        work: Callable[P, T],
        *arguments: P.args,
        **more: P.kwargs,
    ) -> T:
        """What `work` returns or raises; `size` is how many bytes it walks. If the caller is
        cancelled, work that has not begun is given up."""
        if size <= LONGEST_INLINE:
            return work(*arguments, **more)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(work, *arguments, **more))

    async def drive(
        self,
        asked: RoutedRequest,
        size: int,
        begin: Callable[[RoutedRequest], Coroutine[Any, Any, T]],
        fresh: Fresh = as_it_is,
    ) -> T:
        """What the coroutine that `begin` makes comes to. It runs step by step, from one look-up to
        the next: each step where `call` would run it, each look-up on the loop. `size` are the
        bytes of the body; an answer that is larger counts in its place."""
        coroutine = begin(asked._replace(fetch=_ask))
        resume: Callable[[], Any] = partial(coroutine.send, None)
        walked = size
        try:
            while True:
                if walked > LONGEST_INLINE:
                    fresh()
                step = await self.call(walked, _step, resume)
                if isinstance(step, _Done):
                    value: T = step.value
                    return value
                resume, walked = await _looked_up(coroutine, asked.fetch, step.target, size)
        finally:
            # Cancelled in the middle of a step, the thread still has it: it ends with that step.
            with contextlib.suppress(ValueError):
                coroutine.close()


async def _ask(target: str) -> FetchedResponse:
    return await _Ask(target)


def _step(resume: Callable[[], Any]) -> _Wanted | _Done:
    # `StopIteration` can't pass through a future.
    try:
        wanted = resume()
    except StopIteration as done:
        return _Done(done.value)
    assert isinstance(wanted, _Wanted)
    return wanted


async def _looked_up(
    coroutine: Coroutine[Any, Any, Any],
    fetch: Callable[[str], Awaitable[FetchedResponse]],
    target: str,
    size: int,
) -> tuple[Callable[[], Any], int]:
    try:
        answer = await fetch(target)
    except SluiceError as error:
        return partial(coroutine.throw, error), size
    return partial(coroutine.send, answer), max(size, len(answer.body))
