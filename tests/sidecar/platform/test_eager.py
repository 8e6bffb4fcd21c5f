"""A coroutine that runs at once, and as a task from where it first waits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from sidecar.platform import eager
from tests.support import waiting

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])

Task = asyncio.Task[None]


def start(coroutine: Coroutine[Any, Any, None]) -> Task | None:
    """The task that goes on with it, if there is one."""
    return eager.start(coroutine, asyncio.get_running_loop())


async def test_a_coroutine_that_never_waits_needs_no_task() -> None:
    done: list[int] = []

    async def inner() -> int:
        return 2

    async def outer() -> None:
        done.append(await inner())

    before = asyncio.all_tasks()
    assert start(outer()) is None
    assert done == [2]
    assert asyncio.all_tasks() == before


async def test_a_coroutine_that_waits_continues_as_a_task() -> None:
    steps: list[str] = []
    gate = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        steps.append("before")
        steps.append(await gate)
        await asyncio.sleep(0)
        steps.append("after")

    task = start(waits())
    assert task is not None
    assert steps == ["before"]
    gate.set_result("result")
    await task
    assert steps == ["before", "result", "after"]


async def test_a_finished_future_causes_no_wait() -> None:
    gate = asyncio.get_running_loop().create_future()
    gate.set_result(None)

    async def waits() -> None:
        await gate

    assert start(waits()) is None


async def test_an_error_before_the_first_wait_is_raised_at_once() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start(fails())


async def test_an_error_after_the_first_wait_is_the_task_s() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    task = start(fails())
    assert task is not None
    with pytest.raises(ZeroDivisionError):
        await task


async def test_an_error_of_the_first_wait_can_be_caught() -> None:
    gate = asyncio.get_running_loop().create_future()
    caught: list[str] = []

    async def catches() -> None:
        try:
            await gate
        except OSError as error:
            caught.append(str(error))
            await asyncio.sleep(0)
            caught.append("after")

    task = start(catches())
    assert task is not None
    gate.set_exception(OSError("lost"))
    await task
    assert caught == ["lost", "after"]


variable: ContextVar[str] = ContextVar("variable", default="outside")


async def test_a_variable_set_before_the_first_wait_can_be_reset_after_it() -> None:
    seen: list[str] = []

    async def sets() -> None:
        token = variable.set("inside")
        await asyncio.sleep(0)
        seen.append(variable.get())
        variable.reset(token)
        seen.append(variable.get())

    task = start(sets())
    assert variable.get() == "outside"
    assert task is not None
    await task
    assert seen == ["inside", "outside"]


async def _unwinding(steps: list[str], awaited: "asyncio.Future[Any]") -> None:
    try:
        await awaited
    except asyncio.CancelledError:
        steps.append("cancelled")
        raise
    finally:
        # What gives a connection back may have to wait itself.
        await asyncio.sleep(0)
        steps.append("unwound")


@pytest.mark.parametrize("turns", [0, 1, 5], ids=["before-its-first-step", "at-it", "after-it"])
async def test_a_cancellation_reaches_the_coroutine(turns: int) -> None:
    steps: list[str] = []
    awaited = asyncio.get_running_loop().create_future()
    task = start(_unwinding(steps, awaited))
    assert task is not None
    await waiting.turns(turns)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert steps == ["cancelled", "unwound"]
    assert awaited.cancelled()


@pytest.mark.parametrize("turns", [0, 5], ids=["before-its-first-step", "after-it"])
async def test_a_cancellation_ends_the_task_that_is_awaited(turns: int) -> None:
    steps: list[str] = []
    inner = asyncio.create_task(asyncio.Event().wait())
    task = start(_unwinding(steps, inner))
    assert task is not None
    await waiting.turns(turns)
    task.cancel()
    await asyncio.wait((task, inner))
    assert inner.cancelled()


async def test_within_task_a_timeout_works() -> None:
    steps: list[str] = []

    async def limited() -> None:
        await eager.within_task()
        try:
            # expires on purpose
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            steps.append("in time")

    task = start(limited())
    assert task is not None
    await task
    assert steps == ["in time"]


async def test_within_task_waits_only_if_nothing_was_awaited_before() -> None:
    own: list[object] = []

    async def waits() -> None:
        await asyncio.sleep(0)
        before = asyncio.current_task()
        await eager.within_task()
        own.extend((before, asyncio.current_task()))

    task = start(waits())
    assert task is not None
    await task
    assert own == [task, task]
    # In a task that was started in the ordinary way, there is nothing to do.
    coroutine = eager.within_task()
    with pytest.raises(StopIteration):
        coroutine.send(None)


async def test_within_task_gives_the_coroutine_a_task_of_its_own() -> None:
    """Not that of the caller, whose cancellation or deadline would be another's."""
    own: list[object] = []

    async def waits() -> None:
        await eager.within_task()
        own.append(asyncio.current_task())

    async def caller() -> Task | None:
        return start(waits())

    task = await asyncio.create_task(caller())
    assert task is not None
    await task
    assert own == [task]


async def test_a_coroutine_started_within_a_task_may_not_wait() -> None:
    """One that runs at once within another one's first step is itself in no task."""
    own: list[object] = []

    async def waits() -> None:
        await eager.within_task()
        own.append(asyncio.current_task())

    async def outer() -> None:
        own.append(start(waits()))
        await waits()

    task = start(outer())
    assert task is not None
    await task
    inner = own[0]
    assert isinstance(inner, asyncio.Task)
    await inner
    assert set(own) == {inner, task}


async def test_async_context_managers_and_generators_unwind() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def held() -> AsyncIterator[None]:
        steps.append("in")
        try:
            yield
        finally:
            await asyncio.sleep(0)
            steps.append("out")

    async def works() -> None:
        async with held():
            steps.append("work")

    task = start(works())
    assert steps == ["in", "work"]
    assert task is not None
    await task
    assert steps == ["in", "work", "out"]


async def test_a_client_that_leaves_twice_ends_the_work_once() -> None:
    leaves: list[Callable[[], None]] = []

    async def works() -> None:
        async with eager.until_departed(leaves.append):
            leaves[0]()
            try:
                await waiting.never()
            finally:
                leaves[0]()

    with pytest.raises(eager.Departed):
        await works()
    leaves[0]()
