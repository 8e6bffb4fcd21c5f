"""Requests for the same page share reads, and none gets a page that was read before it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from control_api.fleet.set_pages import PageReads
from control_api.store.errors import ReadFault
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound
from tests.support.open_store import TENANT, OpenStore, opened
from tests.support.waiting import until_async


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[OpenStore]:
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as made:
        yield made


class HeldReads:
    """Counts the reads of a store, and holds each until it is released."""

    def __init__(self, world: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.failing = False
        self._read = world.database.reading
        self._turn = asyncio.Semaphore(0)
        monkeypatch.setattr(world.database, "reading", self._reading)

    def release(self, reads: int = 1) -> None:
        for _ in range(reads):
            self._turn.release()

    async def until_begun(self, reads: int) -> None:
        await until_async(f"{reads} reads have begun", lambda: self.begun >= reads)

    @asynccontextmanager
    async def _reading(self, tenant_id: str) -> AsyncIterator[Any]:
        self.begun += 1
        if self.failing:
            raise OSError(5, "input/output error")
        async with self._read(tenant_id) as connection:
            await self._turn.acquire()
            yield connection


async def publish(world: OpenStore, name: str) -> None:
    async def work(tx: Transaction) -> None:
        await tx.publish({name: b"1"})

    await world.store.write(TENANT, work)


async def test_concurrent_requests_share_one_read(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(world, "a")
    held, pages = HeldReads(world, monkeypatch), PageReads(world.store)
    held.release(2)
    found = await asyncio.gather(*(pages.since(TENANT, 0) for _ in range(50)))
    assert held.begun == 1
    assert {id(each) for each in found} == {id(found[0])}
    # Another page is another read.
    await pages.since(TENANT, 1)
    assert held.begun == 2


async def test_a_request_that_arrives_during_a_read_gets_the_next_one(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(world, "a")
    held, pages = HeldReads(world, monkeypatch), PageReads(world.store)
    first = asyncio.ensure_future(pages.since(TENANT, 0))
    await held.until_begun(1)
    late = [asyncio.ensure_future(pages.since(TENANT, 0)) for _ in range(50)]
    await asyncio.sleep(0)
    held.release()
    assert (await first).page.revision == 1
    await publish(world, "b")
    held.release()
    assert {(await each).page.revision for each in late} == {2}
    assert held.begun == 2


async def test_a_request_that_is_cancelled_leaves_the_page_to_the_others(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, pages = HeldReads(world, monkeypatch), PageReads(world.store)
    gone, other = (asyncio.ensure_future(pages.since(TENANT, 0)) for _ in range(2))
    await held.until_begun(1)
    gone.cancel()
    held.release()
    assert (await other).page.documents == []
    assert gone.cancelled()


async def test_a_read_that_fails_fails_each_request_and_no_later_one(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, pages = HeldReads(world, monkeypatch), PageReads(world.store)
    held.failing = True
    found = await asyncio.gather(
        *(pages.since(TENANT, 0) for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in found] == [ReadFault] * 3
    assert len(set(map(id, found))) == 3
    held.failing = False
    held.release(2)
    assert (await pages.since(TENANT, 0)).page.revision == 0
    with pytest.raises(NotFound, match="no such tenant: `absent`"):
        await pages.since("absent", 0)
