"""Keeps long computations off the event loop. Anything that walks a body of more than 64 KiB runs
in one thread beside the loop, so that the loop waits only for its turns: the interpreter switches
threads every 5 ms, but not during a call into C.

A call into C may hold the interpreter's lock. The longest such call creates the objects of a parsed
body, and the limits of `strict_body` on brackets and members bound it. Together the two keep one
request from blocking the loop for 100 ms (the benchmark `blocking` prints the figures).

When a request is cancelled, work that still waits for its turn is dropped. Work that has begun is
awaited, because it holds the body, which counts against the budget until then.

Knows nothing of what is computed. Nothing that runs here may touch the policy set or the loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from policies.ground.errors import SluiceError
from sidecar.protocols.protocol import Fetch, FetchedResponse, RoutedRequest
from sidecar.protocols.strict_body import Budget

LONGEST_INLINE = 64 * 1024
"""The largest size, in bytes, of data that is walked on the event loop: switching to the thread
would take longer."""

_MESSAGE_WORK = 4
"""The work of one byte of a message of gRPC, in bytes of JSON. A parser written in C reads those,
and two bytes of a message may be a field, which is decoded here and encoded again."""

P = ParamSpec("P")
T = TypeVar("T")

Refresh = Callable[[], None]
"""A function to call on the event loop right before something runs in the worker thread: see
`Permission.refresh`."""


def no_refresh() -> None:
    """Do nothing: a `Refresh` for a computation that needs nothing from the loop."""


def message_work(size: int) -> int:
    """Return the number of bytes of JSON that take as long to walk as a message of `size` bytes."""
    return size * _MESSAGE_WORK


class _Done(NamedTuple):
    value: Any


class _Job:
    """Work in the executor's queue. It can be dropped while it waits for its turn."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work: Callable[[], Any] | None = work

    def __call__(self) -> Any:
        assert self._work is not None  # what is dropped never runs
        return self._work()

    def drop(self) -> None:
        """Release the work, and with it the body that it holds. The executor holds the job itself
        until its turn has come."""
        self._work = None


class _Lookup(NamedTuple):
    target: str
    body: bytes | None


class _AwaitedLookup:
    """An awaitable that stands for a look-up inside the worker thread: it yields the look-up to
    `WorkerThread.drive`, which sends it on the loop, and returns the response."""

    __slots__ = ("_lookup",)

    def __init__(self, lookup: _Lookup) -> None:
        self._lookup = lookup

    def __await__(self) -> Generator[_Lookup, FetchedResponse, FetchedResponse]:
        return (yield self._lookup)


class WorkerThread:
    """One thread for the long computations of all sources of a sidecar, started when it is first
    needed. Its queue is bounded by the number of bodies that the sidecar holds."""

    def __init__(self) -> None:
        # A second thread would only compete for the interpreter's lock.
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
        """Run `work` and return its result: on the loop if it walks at most `LONGEST_INLINE` bytes,
        otherwise in the thread. `size` is the number of bytes that it walks."""
        if size <= LONGEST_INLINE:
            return work(*arguments, **more)
        return await self._run(partial(work, *arguments, **more), None)

    async def call_for(
        self,
        budget: Budget,
        size: int,
        work: Callable[P, T],
        *arguments: P.args,
        **more: P.kwargs,
    ) -> T:
        """Run `work` as `call` does, for a request with this `budget`. If the request is cancelled,
        work that has begun stops where it next charges the budget."""
        if size <= LONGEST_INLINE:
            return work(*arguments, **more)
        return await self._run(partial(work, *arguments, **more), budget)

    async def _run(self, work: Callable[[], T], budget: Budget | None) -> T:
        job = _Job(work)
        running = self._executor.submit(job)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if budget is not None:
                budget.end()
            if running.cancel():
                job.drop()
            else:
                # It runs, and holds the body, which counts for as long as the request lasts.
                rest = asyncio.wrap_future(running)
                await asyncio.wait((rest,))
                rest.exception()  # of no interest any more
            raise

    async def drive(
        self,
        routed: RoutedRequest,
        size: int,
        begin: Callable[[RoutedRequest], Coroutine[Any, Any, T]],
        refresh: Refresh = no_refresh,
    ) -> T:
        """Run the coroutine that `begin` creates, step by step from one look-up to the next. Each
        step runs where `call` would run it, and each look-up on the loop. `size` is the size of the
        body in bytes; a step that reads a look-up response larger than that counts with the
        response's size. `refresh` is called on the loop before each step in the thread."""
        coroutine = begin(routed._replace(fetch=_request_lookup))
        resume: Callable[[], Any] = partial(coroutine.send, None)
        walked = size
        try:
            while True:
                if walked > LONGEST_INLINE:
                    refresh()
                step = await self.call_for(routed.budget, walked, _step, resume)
                if isinstance(step, _Done):
                    value: T = step.value
                    return value
                resume, walked = await _look_up(coroutine, routed.fetch, step, size)
        finally:
            # If this was cancelled twice in the middle of a step, the thread still runs the
            # coroutine, which can't be closed then. It ends with that step.
            with contextlib.suppress(ValueError):
                coroutine.close()


async def _request_lookup(target: str, body: bytes | None = None, /) -> FetchedResponse:
    return await _AwaitedLookup(_Lookup(target, body))


def _step(resume: Callable[[], Any]) -> _Lookup | _Done:
    # `StopIteration` can't pass through a future.
    try:
        lookup = resume()
    except StopIteration as done:
        return _Done(done.value)
    assert isinstance(lookup, _Lookup)
    return lookup


async def _look_up(
    coroutine: Coroutine[Any, Any, Any],
    fetch: Fetch,
    lookup: _Lookup,
    size: int,
) -> tuple[Callable[[], Any], int]:
    """Send `lookup`. Returns a function that resumes `coroutine` with the response or the error,
    and the number of bytes that this step walks."""
    try:
        response = await fetch(*lookup)
    except SluiceError as error:
        return partial(coroutine.throw, error), size
    return partial(coroutine.send, response), max(size, len(response.body))
