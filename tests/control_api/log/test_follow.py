"""Tails show each new event once, in order, to its own tenant, and count what they leave out."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from typing import Any

import orjson
import pytest

from control_api.log import tails as follow
from control_api.log.search import EVERY_EVENT, EventFilters
from control_api.log.tail_reading import columns_of, match
from control_api.log.tails import MAX_OF_OWNER, EventTails, Tail
from policies.ground.errors import Unavailable
from tests.support.open_store import OTHER, TENANT, OpenStore, decision

ROWS: list[tuple[Any, ...]] = [
    (1, "a", "s1", "DENY", 10),
    (2, "b", "s1", "ALLOW", 20),
    (3, "a", "s2", "DENY", 30),
]


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        (EVERY_EVENT, [1, 2, 3]),
        (EventFilters(agent_id="a"), [1, 3]),
        (EventFilters(agent_id="a", source_id="s2"), [3]),
        (EventFilters(agent_id="c"), []),
        (EventFilters(decision="DENY", since=20), [3]),
        (EventFilters(since=20, until=30), [2]),
    ],
)
def test_a_row_is_shown_to_those_whose_filters_all_match(
    filters: EventFilters, shown: list[int]
) -> None:
    columns = ["agent_id", "source_id", "decision", "ts"]
    other = EventFilters(agent_id="b")
    assert match(ROWS, columns, [filters, other]) == {filters: shown, other: [2]}


def test_only_the_columns_that_a_filter_compares_are_read() -> None:
    assert columns_of([EVERY_EVENT]) == []
    assert columns_of([EventFilters(user_id="u"), EventFilters(until=1)]) == ["user_id", "ts"]
    everything = EventFilters(**dict.fromkeys(asdict(EVERY_EVENT), "x"))  # type: ignore[arg-type]
    assert len(columns_of([everything])) == len(asdict(EVERY_EVENT)) - 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "TURN_SECONDS", 0.01)


async def seen(tail: Tail, number: int) -> list[dict[str, Any]]:
    """The next so many events, with those left out counted."""
    events: list[dict[str, Any]] = []
    counted = 0
    async with asyncio.timeout(30):
        while counted < number:
            part = await tail.next(1)
            if part is not None:
                events += [orjson.loads(each.json) for each in part.events]
                counted += len(part.events) + part.left_out
    assert counted == number
    return events


async def test_a_tail_gets_each_matching_event_once_and_in_order(world: OpenStore) -> None:
    stopping = asyncio.Event()
    tails = EventTails(world.store, stopping)
    mine = EventFilters(source_id="mine")
    async with (
        tails.follow(TENANT, "me", mine, None) as some,
        tails.follow(TENANT, "me", EVERY_EVENT, None) as all_,
        tails.follow(OTHER, "they", EVERY_EVENT, None) as theirs,
    ):
        for number in range(6):
            source = "mine" if number % 2 else "other"
            await world.log.append(TENANT, decision(source_id=source, user_id=f"u{number}"))
        assert [each["user_id"] for each in await seen(some, 3)] == ["u1", "u3", "u5"]
        assert [each["user_id"] for each in await seen(all_, 6)] == [f"u{n}" for n in range(6)]
        assert await theirs.next(0.05) is None
        await world.log.append(OTHER, decision(user_id="other tenant"))
        assert [each["user_id"] for each in await seen(theirs, 1)] == ["other tenant"]
        stopping.set()
        async with asyncio.timeout(30):
            while not (some.ended and theirs.ended):
                await some.next(0.01)
    assert len(tails) == 0


async def test_tails_are_bounded_and_one_that_returns_misses_nothing(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = asyncio.Event()
    tails = EventTails(world.store, stopping)
    for number in range(4):
        await world.log.append(TENANT, decision(user_id=f"u{number}"))
    async with tails.follow(TENANT, "me", EVERY_EVENT, 1) as tail:
        users = [orjson.loads(each.json)["user_id"] for each in tail.missed.events]
        assert users == ["u1", "u2", "u3"]
        await world.log.append(TENANT, decision(user_id="live"))
        assert [each["user_id"] for each in await seen(tail, 1)] == ["live"]
        async with contextlib.AsyncExitStack() as others:
            for _ in range(MAX_OF_OWNER - 1):
                await others.enter_async_context(tails.follow(TENANT, "me", EVERY_EVENT, None))
            with pytest.raises(Unavailable, match="live tails"):
                tails.require_room("me")
            tails.require_room("another")
        tails.require_room("me")
    assert len(tails) == 0
    monkeypatch.setattr(follow, "EVENTS_AT_ONCE", 3)
    monkeypatch.setattr(follow, "EVENTS_PER_SECOND", 0)
    async with tails.follow(TENANT, "me", EVERY_EVENT, None) as tail:
        for many in (2, 4):
            await asyncio.gather(*(world.log.append(TENANT, decision()) for _ in range(many)))
            assert len(await seen(tail, many)) == min(many, 3 - 2 * (many == 4))
        stopping.set()


@pytest.mark.deep(stands_in="test_tails_are_bounded_and_one_that_returns_misses_nothing")
async def test_a_burst_is_bounded_and_counted(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "EVENTS_AT_ONCE", 3)
    monkeypatch.setattr(follow, "EVENTS_PER_SECOND", 0)
    stopping = asyncio.Event()
    tails = EventTails(world.store, stopping)
    async with tails.follow(TENANT, "me", EVERY_EVENT, None) as tail:
        await asyncio.gather(*(world.log.append(TENANT, decision()) for _ in range(10)))
        assert len(await seen(tail, 10)) == 3
        stopping.set()


@pytest.mark.deep(stands_in="test_tails_are_bounded_and_one_that_returns_misses_nothing")
async def test_a_follower_that_returns_misses_nothing(world: OpenStore) -> None:
    for number in range(5):
        await world.log.append(TENANT, decision(user_id=f"u{number}"))
    first = (await world.rows("SELECT min(seq) FROM log_entries WHERE kind = 'decision'"))[0][0]
    stopping = asyncio.Event()
    tails = EventTails(world.store, stopping)
    async with tails.follow(TENANT, "me", EVERY_EVENT, first + 2) as tail:
        users = [orjson.loads(each.json)["user_id"] for each in tail.missed.events]
        assert users == ["u2", "u3", "u4"]
        await world.log.append(TENANT, decision(user_id="live"))
        assert [each["user_id"] for each in await seen(tail, 1)] == ["live"]
    # One that was shown more than this process has read is not shown it again.
    async with tails.follow(TENANT, "me", EVERY_EVENT, first + 10_000) as tail:
        await world.log.append(TENANT, decision(user_id="next"))
        assert [each["user_id"] for each in await seen(tail, 1)] == ["next"]
        stopping.set()


async def test_a_slow_follower_gets_the_newest_and_the_number_of_the_others(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "EVENTS_AT_ONCE", 1)
    monkeypatch.setattr(follow, "EVENTS_PER_SECOND", 1e6)
    stopping = asyncio.Event()
    tails = EventTails(world.store, stopping)
    async with (
        tails.follow(TENANT, "slow", EVERY_EVENT, None) as slow,
        tails.follow(TENANT, "quick", EVERY_EVENT, None) as fast,
    ):
        for number in range(4):
            await world.log.append(TENANT, decision(user_id=f"u{number}"))
            await seen(fast, 1)  # a turn for each
        part = await slow.next(1)
        assert part is not None
        assert [orjson.loads(each.json)["user_id"] for each in part.events] == ["u3"]
        assert part.left_out == 3
        stopping.set()


@pytest.mark.deep(stands_in="test_tails_are_bounded_and_one_that_returns_misses_nothing")
async def test_tails_are_bounded_by_owner_and_freed(world: OpenStore) -> None:
    stopping = asyncio.Event()
    tails = EventTails(world.store, stopping)

    async def hold(ready: asyncio.Semaphore, done: asyncio.Event) -> None:
        async with tails.follow(TENANT, "me", EVERY_EVENT, None):
            ready.release()
            await done.wait()

    ready, done = asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(MAX_OF_OWNER):
            group.create_task(hold(ready, done))
        for _ in range(MAX_OF_OWNER):
            await ready.acquire()
        with pytest.raises(Unavailable, match="live tails"):
            tails.require_room("me")
        tails.require_room("another")
        done.set()
    tails.require_room("me")
    assert len(tails) == 0
