"""Group commit: each caller gets its own answer, whatever happens to the batch."""

from __future__ import annotations

import asyncio

import pytest

from control_api.store import group_commit
from control_api.store.errors import WriteFault
from control_api.store.group_commit import GroupCommit, WriteQueueFull
from policies.ground.errors import Conflict, SluiceError
from tests.support.waiting import turns


class Batches:
    """Commits when it is allowed to, and remembers the batches."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[int]]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def commit(self, lane: str, items: list[int]) -> list[int | SluiceError]:
        self.seen.append((lane, items))
        await self.go_on.wait()
        if -1 in items:
            raise ZeroDivisionError
        return [Conflict(str(item)) if item == 13 else item * 2 for item in items]


async def test_items_that_arrive_during_a_commit_form_the_next_batch() -> None:
    batches = Batches()
    async with asyncio.TaskGroup() as group:
        commits: GroupCommit[int, int] = GroupCommit(group, batches.commit)
        batches.go_on.clear()
        first = [group.create_task(commits.submit("a", n)) for n in range(3)]
        await turns()
        second = [group.create_task(commits.submit("a", n)) for n in range(3, 9)]
        other = group.create_task(commits.submit("b", 70))
        await turns()
        batches.go_on.set()
    assert [task.result() for task in first + second] == [n * 2 for n in range(9)]
    assert other.result() == 140
    assert batches.seen == [("a", [0, 1, 2]), ("b", [70]), ("a", [3, 4, 5, 6, 7, 8])]


async def test_items_are_prepared_while_the_batch_before_theirs_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of those that arrive at once wait, so that there is something to prepare."""
    monkeypatch.setattr(group_commit, "HALVED", 4)
    batches, prepared = Batches(), list[tuple[str, int, int]]()
    async with asyncio.TaskGroup() as group:
        commits: GroupCommit[int, int] = GroupCommit(
            group, batches.commit, lambda *asked: prepared.append(asked)
        )
        batches.go_on.clear()
        first = [group.create_task(commits.submit("a", n)) for n in range(6)]
        await turns()
        prepared.clear()
        second = [group.create_task(commits.submit("a", n)) for n in range(6, 9)]
        await turns()
        assert prepared == [("a", 6, 3), ("a", 7, 4), ("a", 8, 5)]
        batches.go_on.set()
    assert [task.result() for task in first + second] == [n * 2 for n in range(9)]
    assert batches.seen == [("a", [0, 1, 2]), ("a", [3, 4, 5, 6, 7, 8])]


async def test_a_refused_item_does_not_affect_the_others() -> None:
    async with asyncio.TaskGroup() as group:
        commits: GroupCommit[int, int] = GroupCommit(group, Batches().commit)
        answers = await asyncio.gather(
            *(commits.submit("a", n) for n in (12, 13, 14)), return_exceptions=True
        )
    assert answers[0] == 24
    assert isinstance(answers[1], Conflict)
    assert answers[2] == 28


async def test_a_caller_that_hangs_up_withdraws_nothing_and_disturbs_no_other() -> None:
    batches = Batches()
    async with asyncio.TaskGroup() as group:
        commits: GroupCommit[int, int] = GroupCommit(group, batches.commit)
        batches.go_on.clear()
        calls = [asyncio.ensure_future(commits.submit("a", n)) for n in (1, 2)]
        await turns()
        calls += [asyncio.ensure_future(commits.submit("a", n)) for n in (3, 4)]
        await turns()
        for call in calls[::2]:
            call.cancel()
        await turns()
        batches.go_on.set()
        assert [await call for call in calls[1::2]] == [4, 8]
        assert await commits.submit("a", 5) == 10
    assert [items for _, items in batches.seen] == [[1, 2], [3, 4], [5]]


async def test_an_exception_reaches_the_callers_of_its_batch_alone() -> None:
    async with asyncio.TaskGroup() as group:
        commits: GroupCommit[int, int] = GroupCommit(group, Batches().commit)
        answers = await asyncio.gather(
            *(commits.submit("a", n) for n in (1, -1)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [ZeroDivisionError] * 2
        assert await commits.submit("a", 1) == 2


async def test_a_full_queue_refuses_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "MAX_WAITING", 4)
    batches = Batches()
    async with asyncio.TaskGroup() as group:
        commits: GroupCommit[int, int] = GroupCommit(group, batches.commit)
        batches.go_on.clear()
        waiting = [group.create_task(commits.submit("a", n)) for n in range(4)]
        await turns()
        waiting += [group.create_task(commits.submit("a", n)) for n in range(4)]
        await turns()
        with pytest.raises(WriteQueueFull):
            await commits.submit("a", 9)
        batches.go_on.set()
    assert [task.result() for task in waiting] == [0, 2, 4, 6] * 2


async def test_a_batch_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MAX_BATCH", 4)
    batches = Batches()
    async with asyncio.TaskGroup() as group:
        commits: GroupCommit[int, int] = GroupCommit(group, batches.commit)
        await asyncio.gather(*(commits.submit("a", n) for n in range(10)))
    assert [len(items) for _, items in batches.seen] == [4, 4, 2]


async def test_a_stopping_service_fails_every_waiting_caller() -> None:
    batches = Batches()
    outcomes: list[asyncio.Future[list[int | BaseException]]] = []

    async def end() -> None:
        async with asyncio.TaskGroup() as group:
            commits: GroupCommit[int, int] = GroupCommit(group, batches.commit)
            batches.go_on.clear()
            for at in range(2):
                callers = (commits.submit("a", at) for _ in range(3))
                outcomes.append(asyncio.gather(*callers, return_exceptions=True))
                await turns()
            raise ConnectionError

    with pytest.raises(BaseExceptionGroup):
        await end()
    for outcome in outcomes:
        assert [type(answer) for answer in await outcome] == [WriteFault] * 3
