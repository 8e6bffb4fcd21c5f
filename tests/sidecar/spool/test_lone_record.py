"""A record that alone waits for a fast disk is written by the event loop itself, without the
writer's thread: as durable, and with the same failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path

import pytest

from policies.ground.clock import Clock
from sidecar.spool import Spool, SpoolUnwritable
from sidecar.spool.writing.writer import FAST_SYNCS
from tests.sidecar.spool.running_spool import (
    FaultyDisk,
    eids,
    gaps,
    keep,
    record,
    running_spool,
    shipped,
)
from tests.support.waiting import until_async

FAST = time.monotonic()
"""A clock that stands still: whatever the machine does, each sync takes no time."""


class WatchedDisk(FaultyDisk):
    """Knows which thread made the last sync."""

    def __init__(self) -> None:
        super().__init__()
        self._last: threading.Thread | None = None

    def sync(self, descriptor: int) -> None:
        self._last = threading.current_thread()
        super().sync(descriptor)

    def in_loop(self) -> bool:
        return self._last is threading.main_thread()


def timed_spool(
    root: Path,
    disk: FaultyDisk,
    monotonic: Callable[[], float] = lambda: FAST,
    mode: str = "durable",
) -> AbstractAsyncContextManager[Spool]:
    """A spool for which the syncs take as long as `monotonic` says."""
    clock = Clock(now=lambda: time.time_ns() // 1000, monotonic=monotonic)
    return running_spool(root, disk, clock=clock, mode=mode)


async def keep_one_by_one(spool: Spool, first: int, many: int) -> None:
    for eid in range(first, first + many):
        await keep(spool, eid)


async def test_the_loop_writes_once_the_disk_was_fast_often_enough(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with timed_spool(tmp_path / "spool", disk) as spool:
        await keep(spool, 0)
        assert not disk.in_loop()
        await keep_one_by_one(spool, 1, FAST_SYNCS)
        assert disk.in_loop()
        assert eids(await shipped(spool)) == [str(eid) for eid in range(FAST_SYNCS + 1)]


async def test_a_record_written_by_the_loop_survives_a_restart(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with timed_spool(tmp_path / "spool", disk) as spool:
        await keep_one_by_one(spool, 0, FAST_SYNCS + 3)
        assert disk.in_loop()
        await keep(spool, "a", "b")
    async with timed_spool(tmp_path / "spool", WatchedDisk()) as spool:
        before = [str(eid) for eid in range(FAST_SYNCS + 3)]
        assert eids(await shipped(spool)) == [*before, "a", "b"]


async def test_records_that_wait_together_are_written_by_the_thread(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with timed_spool(tmp_path / "spool", disk) as spool:
        await keep_one_by_one(spool, 0, FAST_SYNCS + 1)
        await keep(spool, "a", "b")
        assert not disk.in_loop()


async def test_a_record_that_no_answer_waits_for_is_written_by_the_thread(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with timed_spool(tmp_path / "spool", disk) as spool:
        await keep_one_by_one(spool, 0, FAST_SYNCS + 1)
        spool.put(record("lineage"), denial=False, urgent=False)
        await until_async("the records are in the spool", lambda: spool.depth == FAST_SYNCS + 2)
        assert not disk.in_loop()


async def test_the_loop_never_waits_for_a_slow_disk(tmp_path: Path) -> None:
    disk, seconds = WatchedDisk(), count()
    async with timed_spool(tmp_path / "spool", disk, lambda: float(next(seconds))) as spool:
        await keep_one_by_one(spool, 0, 2 * FAST_SYNCS)
        assert not disk.in_loop()


async def test_the_loop_never_waits_in_mode_strict(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with timed_spool(tmp_path / "spool", disk, mode="strict") as spool:
        await keep_one_by_one(spool, 0, 2 * FAST_SYNCS)
        assert not disk.in_loop()


@pytest.mark.parametrize("operation", ["write", "sync"])
async def test_a_failure_is_reported_and_declared(tmp_path: Path, operation: str) -> None:
    disk = WatchedDisk()
    async with timed_spool(tmp_path / "spool", disk) as spool:
        await keep_one_by_one(spool, 0, FAST_SYNCS + 1)
        assert disk.in_loop()
        disk.breaks(operation)
        with pytest.raises(SpoolUnwritable):
            await keep(spool, "lost")
        assert spool.sync_failures == 1
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        await keep(spool, "after")
        cores = await shipped(spool)
        assert eids(cores) == [*(str(eid) for eid in range(FAST_SYNCS + 1)), "after"]
        assert [gap["lost"] for gap in gaps(cores)] == [1]
