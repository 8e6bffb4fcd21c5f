"""Searches leave decisions their time: by a clock that the test moves."""

from __future__ import annotations

import asyncio
import threading

import pytest

from policies.ground.errors import Unavailable
from sidecar.authzen.search.claimants import (
    BURST_SECONDS,
    MAX_SEARCHES,
    SHARE,
    SLICE_SECONDS,
    SearchPace,
)


class Sidecar:
    """A clock and a count of decisions; what a search sleeps passes on the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.decisions = 0
        self.slept: list[float] = []
        self.deciding = True
        self._thread = threading.get_ident()
        self._real_sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._sleep)
        self.pace = SearchPace(lambda: self.now, lambda: self.decisions)

    async def _sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:
            # Of a server that another test has left running.
            await self._real_sleep(seconds)
            return
        # While a search sleeps, decisions are made.
        self.decisions += self.deciding
        self.now += seconds
        if seconds:
            self.slept.append(seconds)


async def work(sidecar: Sidecar, slices: int) -> float:
    """A search of so many slices. Returns the seconds from its beginning to its end."""
    began = sidecar.now
    with sidecar.pace.search() as paced:
        for _ in range(slices):
            sidecar.now += SLICE_SECONDS
            await paced.rest()
        await paced.rest(last=True)
    return sidecar.now - began


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Sidecar:
    return Sidecar(monkeypatch)


async def test_beside_decisions_searches_take_their_share_at_most(busy: Sidecar) -> None:
    slices = 5000
    took = await work(busy, slices)
    # All but what was saved up before.
    assert slices * SLICE_SECONDS / (took + BURST_SECONDS) <= SHARE


async def test_a_small_search_after_a_pause_does_not_wait(busy: Sidecar) -> None:
    await work(busy, 5)
    assert busy.slept == []


async def test_concurrent_searches_share_their_time(busy: Sidecar) -> None:
    began = busy.now
    for _ in range(200):
        await work(busy, 5)
    assert 200 * 5 * SLICE_SECONDS / (busy.now - began + BURST_SECONDS) <= SHARE


async def test_a_search_without_decisions_continues_at_once(busy: Sidecar) -> None:
    busy.deciding = False
    await work(busy, 5000)
    assert busy.slept == []


async def test_less_than_a_slice_is_not_interrupted(busy: Sidecar) -> None:
    with busy.pace.search() as paced:
        before = busy.decisions
        await paced.rest(last=True)
        await paced.rest()
        assert busy.decisions == before + 1, "the end of a search lets others work once"


async def test_too_many_searches_at_once_are_refused(busy: Sidecar) -> None:
    under_way = [busy.pace.search() for _ in range(MAX_SEARCHES)]
    for each in under_way:
        each.__enter__()
    with pytest.raises(Unavailable, match="searches are under way"), busy.pace.search():
        pass
    under_way[0].__exit__(None, None, None)
    with busy.pace.search():
        pass
