"""One caller reads for all that wait, and fails only for its own names."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.policy_cache.feed import FeedFailed
from sidecar.policy_cache.partial_replica.failover import MAX_NAMES, MAX_WAITING, RequestCoalescer
from sidecar.policy_cache.partial_replica.redis_reader import TornRead
from tests.support import waiting


class Source:
    """Reads once `open` is set; a read with a name in `torn` fails."""

    def __init__(self) -> None:
        self.reads: list[set[str]] = []
        self.torn: set[str] = set()
        self.failure: FeedFailed | None = None
        self.open = asyncio.Event()
        self.turn = asyncio.Lock()
        self.coalescer = RequestCoalescer(self.turn, self.read)

    async def read(self, names: set[str]) -> None:
        self.reads.append(names)
        await self.open.wait()
        if names & self.torn:
            raise TornRead("missing", [])
        if self.failure is not None:
            raise self.failure

    async def look_up(self, *callers: str) -> list[BaseException | None]:
        """The outcome for each of these callers, who ask while a first read is in progress."""
        first = asyncio.create_task(self.coalescer.fetch(["first"]))
        others = [asyncio.create_task(self.coalescer.fetch(names.split())) for names in callers]
        await waiting.turns()
        self.open.set()
        return (await asyncio.gather(first, *others, return_exceptions=True))[1:]


async def test_one_read_serves_all_waiting_callers() -> None:
    source = Source()
    assert await source.look_up(*(f"key/{n} role/{n % 3}" for n in range(100))) == [None] * 100
    assert len(source.reads) == 2
    assert len(source.reads[1]) == 103


async def test_a_loop_that_shares_the_turn_waits_for_two_reads_at_most() -> None:
    source = Source()
    asking = asyncio.create_task(source.look_up(*(f"key/{n}" for n in range(200))))
    await waiting.turns()
    async with source.turn:
        assert len(source.reads) <= 2
    await asking


async def test_a_combined_read_is_bounded() -> None:
    source = Source()
    callers = [" ".join(f"{n}.{m}" for m in range(7)) for n in range(100)]
    assert await source.look_up(*callers) == [None] * 100
    assert max(map(len, source.reads)) <= MAX_NAMES
    assert len(source.reads) == 3


async def test_a_damaged_document_fails_only_the_caller_that_asked_for_it() -> None:
    source = Source()
    source.torn = {"forged"}
    outcomes = await source.look_up("a", "forged", "b", "c")
    assert [type(outcome) for outcome in outcomes] == [
        type(None), TornRead, type(None), type(None),
    ]  # fmt: skip
    assert source.reads[1] == {"a", "forged", "b", "c"}


async def test_a_failure_is_shared_and_not_retried_by_each_caller() -> None:
    source = Source()
    source.failure = FeedFailed("Redis is away")
    outcomes = await source.look_up("a", "b", "c")
    assert [str(outcome) for outcome in outcomes] == ["Redis is away"] * 3
    assert len(source.reads) == 2


async def test_a_cancelled_caller_leaves_the_others_to_the_next() -> None:
    source = Source()
    leader = asyncio.create_task(source.coalescer.fetch(["leader"]))
    others = [asyncio.create_task(source.coalescer.fetch([name])) for name in "abc"]
    await waiting.turns()
    others[0].cancel()
    leader.cancel()
    await waiting.turns()
    source.open.set()
    await asyncio.gather(*others[1:])
    assert source.reads == [{"leader"}, {"b", "c"}]


async def test_one_caller_too_many_is_refused_at_once() -> None:
    source = Source()
    callers = [f"key/{n}" for n in range(MAX_WAITING - 1)]
    outcomes = asyncio.create_task(source.look_up(*callers))
    await waiting.turns()
    with pytest.raises(FeedFailed, match="too many"):
        await source.coalescer.fetch(["one more"])
    assert await outcomes == [None] * len(callers)
    await source.coalescer.fetch(["one more"])
