"""How an answer waits for its record, in each mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sidecar.spool import Spool, SpoolSettings, SpoolSlow, SpoolUnwritable
from tests.sidecar.spool.running_spool import (
    MIB,
    FaultyDisk,
    eids,
    gaps,
    keep,
    record,
    running_spool,
    shipped,
)
from tests.support.loop_clock import LoopClock, moving_clock
from tests.support.waiting import until_async

TIMEOUT = 600.0


@asynccontextmanager
async def strict(tmp_path: Path, disk: FaultyDisk) -> AsyncIterator[tuple[Spool, LoopClock]]:
    """A spool whose answers wait so many seconds for their record, by a clock to move."""
    with moving_clock() as clock:
        limit = int(TIMEOUT * 1000)
        async with running_spool(
            tmp_path, disk, clock=clock.clock, mode="strict", timeout_ms=limit
        ) as spool:
            yield spool, clock


async def test_a_strict_put_stops_waiting_in_time_and_its_record_is_kept(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with strict(tmp_path, disk) as (spool, clock):
        disk.hold()
        slow = spool.put(record("slow"), denial=False)
        await clock.skip(0.8 * TIMEOUT)
        assert not slow.durable.done()
        later = spool.put(record("later"), denial=False)
        await clock.skip(0.4 * TIMEOUT)
        with pytest.raises(SpoolSlow):
            await slow.durable
        assert not later.durable.done()
        await clock.skip(0.8 * TIMEOUT)
        with pytest.raises(SpoolSlow):
            await later.durable
        disk.release()
        await until_async("the records are in the spool", lambda: spool.depth == 2)
        # No answer was sent; a decision too many in the log is harmless.
        assert eids(await shipped(spool)) == ["slow", "later"]


async def test_strict_in_time_is_like_durable(tmp_path: Path) -> None:
    async with running_spool(tmp_path, mode="strict", timeout_ms=5000) as spool:
        await keep(spool, *range(100))
        assert len(await shipped(spool)) == 100


async def test_a_strict_put_is_timed_from_its_own_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with strict(tmp_path, disk) as (spool, clock):
        await keep(spool, "first")
        await clock.skip(0.8 * TIMEOUT)
        disk.hold()
        later = spool.put(record("later"), denial=False)
        await clock.skip(0.8 * TIMEOUT)
        assert not later.durable.done(), "the timer of the first one ended it"
        await clock.skip(0.4 * TIMEOUT)
        with pytest.raises(SpoolSlow):
            await later.durable
        disk.release()


async def test_best_effort_answers_without_the_disk(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, mode="best_effort") as spool:
        disk.hold()
        placed = [spool.put(record(n), denial=False) for n in range(100)]
        assert all(each.durable.done() and each.stored for each in placed)
        disk.release()
        await until_async("the records are in the spool", lambda: spool.depth == 100)
        assert len(await shipped(spool)) == 100


async def test_best_effort_counts_lost_records_and_declares_them(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, mode="best_effort", memory_bytes=MIB) as spool:
        await keep(spool, "first")
        disk.hold()
        placed = [spool.put(record(n, query="q" * 10_000), denial=False) for n in range(300)]
        dropped = [each for each in placed if not each.stored]
        kept = len(placed) - len(dropped)
        assert 90 < kept < 110
        assert all(each.durable.done() for each in dropped)
        assert {each.core_hash for each in dropped} == {bytes(32)}
        assert spool.lost == len(dropped)
        assert spool.bytes_waiting < 1.1 * MIB
        disk.release()
        await until_async("the gap is declared", lambda: spool.gaps == 1)
        cores = await shipped(spool)
    # One chain without a hole: what was dropped never had a number.
    assert eids(cores) == ["first", *map(str, range(kept))]
    (gap,) = gaps(cores)
    assert (gap["instance"], gap["first"], gap["lost"]) == (None, None, len(dropped))
    assert "memory" in gap["reason"]


async def shipped_until_declared(spool: Spool, lost: int) -> list[dict[str, Any]]:
    """Ships until so many records are declared lost."""
    cores: list[dict[str, Any]] = []

    async def declared() -> bool:
        cores.extend(await shipped(spool))
        return bool(sum(gap["lost"] for gap in gaps(cores)) >= lost)

    await until_async(f"{lost} are declared", declared)
    return cores


async def test_best_effort_answers_while_the_disk_is_bad_and_declares_all(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, mode="best_effort") as spool:
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        spool.put(record("kept"), denial=False)
        await until_async("the records are in the spool", lambda: spool.depth == 1)
        disk.breaks("sync")
        answered = 0
        for n in range(50):
            placed = spool.put(record(n), denial=n % 2 == 0)
            await placed.durable
            answered += 1
            await asyncio.sleep(0.002)
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        cores = await shipped_until_declared(spool, answered)
    assert eids(cores) == ["kept"]
    assert sum(gap["lost"] for gap in gaps(cores)) == answered


async def test_best_effort_answers_when_full_and_declares_when_there_is_room(
    tmp_path: Path,
) -> None:
    async with running_spool(tmp_path, mode="best_effort", max_bytes=3 * MIB) as spool:
        lost = 0
        for n in range(100):
            lost += not spool.put(record(n, query="q" * 50_000), denial=False).stored
            await until_async("everything is on disk", lambda: not spool.bytes_waiting)
        assert lost > 20
        cores = await shipped_until_declared(spool, lost)
    assert len(eids(cores)) == 100 - lost
    assert sum(gap["lost"] for gap in gaps(cores)) == lost


async def test_best_effort_declares_losses_before_it_closes(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, mode="best_effort", memory_bytes=MIB) as spool:
        disk.hold()
        lost = sum(
            not spool.put(record(n, query="q" * 10_000), denial=False).stored for n in range(300)
        )
        disk.release()
    async with running_spool(tmp_path) as spool:
        assert sum(gap["lost"] for gap in gaps(await shipped(spool))) == lost


async def test_memory_is_bounded_in_the_other_modes_by_refusing(tmp_path: Path) -> None:
    """A disk that hangs must not fill the memory with clients that try again."""
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, memory_bytes=MIB) as spool:
        disk.hold()
        while spool.bytes_waiting < MIB:
            spool.put(record("large", query="q" * 10_000), denial=True)
        with pytest.raises(SpoolSlow):
            spool.put(record("small"), denial=True)
        assert spool.bytes_waiting < 1.1 * MIB
        disk.release()
        await until_async("everything is on disk", lambda: not spool.bytes_waiting)
        await keep(spool, "later")
        assert not gaps(await shipped(spool))


async def test_a_waiter_that_left_is_no_error_of_the_loop(tmp_path: Path) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: problems.append(about))
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.breaks("sync")
        for n in range(5):
            spool.put(record(n), denial=False)
        await until_async("the disk has failed", lambda: spool.sync_failures > 0)
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
    assert not problems


def test_settings_are_judged_all_at_once() -> None:
    good = SpoolSettings(Path("spool"))
    assert good.complaints() == {}
    bad = SpoolSettings(Path("spool"), "durable", 5, 4, 0, 3)
    assert set(bad.complaints()) == {"segment_bytes", "max_bytes", "timeout_ms", "memory_bytes"}


async def test_errors_show_a_caller_no_path(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.breaks("sync")
        placed = spool.put(record(), denial=False)
        with pytest.raises(SpoolUnwritable) as failed:
            await placed.durable
        with pytest.raises(SpoolUnwritable) as refused:
            spool.put(record(), denial=False)
    for error in (failed.value, refused.value):
        assert error.status == 503
        assert "/" not in error.message
        assert "Errno" not in error.message
