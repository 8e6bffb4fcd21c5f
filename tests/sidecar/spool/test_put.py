"""A record put is numbered and chained at once, and done when it is on disk."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import tracemalloc
from pathlib import Path

import orjson
import pytest

from sidecar.spool import Spool, SpoolUnwritable
from sidecar.spool.errors import RecordTooLarge, SpoolLocked
from tests.sidecar.spool.running_spool import (
    CLOCK,
    MIB,
    SOURCE,
    FaultyDisk,
    check_chain,
    eids,
    instances,
    keep,
    keep_large,
    read_hash,
    record,
    running_spool,
    settings,
    shipped,
)
from tests.support import waiting


async def test_records_ship_in_the_order_they_were_put_and_chained(tmp_path: Path) -> None:
    async with running_spool(tmp_path / "spool") as spool:
        await keep(spool, *range(500))
        assert spool.depth == 500
        cores = await shipped(spool)
    assert eids(cores) == [str(n) for n in range(500)]
    assert [core["src"]["n"] for core in cores] == list(range(500))


async def test_put_returns_the_hash_that_the_record_is_read_back_with(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        placed = [spool.put(record(n), denial=False) for n in range(20)]
        await placed[-1].durable
        cores = await shipped(spool)
    assert [each.core_hash for each in placed] == [read_hash(core) for core in cores]


async def test_one_sync_covers_all_records_gathered_during_the_previous_one(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.hold()
        first = spool.put(record("first"), denial=False)
        await asyncio.to_thread(disk.waiting.wait, 5)
        rest = [spool.put(record(n), denial=False) for n in range(64)]
        disk.calls.clear()
        await waiting.turns()
        assert not any(each.durable.done() for each in [first, *rest])
        disk.release()
        await asyncio.gather(*(each.durable for each in [first, *rest]))
        assert disk.calls.count("sync") == 2
        assert disk.calls.count("write") == 1


async def test_nothing_is_done_before_its_sync_returns(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.hold()
        placed = spool.put(record(), denial=False)
        await asyncio.to_thread(disk.waiting.wait, 5)
        await waiting.turns()
        assert not placed.durable.done()
        assert spool.depth == 0
        assert await spool.batch(MIB) is None
        disk.release()
        await placed.durable
        assert spool.depth == 1


async def test_a_cancelled_waiter_cancels_neither_its_record_nor_the_others(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.hold()
        placed = [spool.put(record(n), denial=False) for n in range(3)]
        placed[1].durable.cancel()
        disk.release()
        await placed[0].durable
        await placed[2].durable
        assert eids(await shipped(spool)) == ["0", "1", "2"]


async def test_the_loop_continues_while_the_disk_hangs(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.hold()
        spool.put(record(), denial=False)
        for _ in range(100):
            await asyncio.sleep(0)
        disk.release()


async def test_a_record_of_the_greatest_size_is_kept(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        large = record("large", query="ü" * 32_000)
        await spool.put(large, denial=False).durable
        await keep(spool, "small")
        assert eids(await shipped(spool, max_bytes=1)) == ["large", "small"]


async def test_a_record_too_large_to_ship_is_refused_and_leaves_no_hole(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        await keep(spool, "before")
        with pytest.raises(RecordTooLarge):
            spool.put(record("large", query="x" * 300_000), denial=True)
        await keep(spool, "after")
        assert eids(await shipped(spool)) == ["before", "after"]


async def test_records_run_over_many_segments_without_a_hole(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        sizes = [1, 3000, 60_000, 5, 40_000]
        names = []
        for n in range(120):
            names.append(str(n))
            query = "q" * sizes[n % len(sizes)]
            await keep_large(spool, record(n, query=query))
        assert len(list(tmp_path.glob("0*/*.seg"))) > 2
        cores = []
        while (batch := await spool.batch(200_000)) is not None:
            assert sum(map(len, batch.payloads)) <= 200_000
            cores += [orjson.loads(payload)["core"] for payload in batch.payloads]
            await spool.acknowledge(batch.instance, batch.last_n)
    assert eids(check_chain(cores)) == names


async def test_a_write_that_the_kernel_takes_in_pieces_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    async with running_spool(tmp_path) as spool:
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:100], at))
        await keep(spool, *range(10))
        monkeypatch.undo()
        assert eids(await shipped(spool)) == [str(n) for n in range(10)]


async def test_a_second_process_learns_which_directory_is_held(tmp_path: Path) -> None:
    async with running_spool(tmp_path):
        with pytest.raises(SpoolLocked, match=str(tmp_path)):
            await Spool.open(settings(tmp_path), SOURCE, CLOCK, os.urandom)
    async with running_spool(tmp_path):
        pass


async def test_only_its_user_can_read_the_spool(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "spool"
    async with running_spool(root) as spool:
        await keep(spool, 1)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()}
        assert modes == {0o600}
        assert {stat.S_IMODE(path.stat().st_mode) for path in [root, *instances(root)]} == {0o700}


async def test_a_directory_that_can_not_be_made_fails_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolUnwritable, match="file"):
        await Spool.open(settings(tmp_path / "file" / "spool"), SOURCE, CLOCK, os.urandom)


async def test_closing_waits_for_earlier_puts_and_accepts_no_more(tmp_path: Path) -> None:
    spool = await Spool.open(settings(tmp_path), SOURCE, CLOCK, os.urandom)
    placed = [spool.put(record(n), denial=False) for n in range(50)]
    await spool.close(5)
    assert all(each.durable.done() and each.durable.exception() is None for each in placed)
    with pytest.raises(SpoolUnwritable):
        spool.put(record(), denial=True)
    async with running_spool(tmp_path) as spool:
        assert len(eids(await shipped(spool))) == 50


@pytest.mark.parametrize("urgent", [True, False])
async def test_closing_waits_no_longer_than_for_the_last_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, urgent: bool
) -> None:
    spool = await Spool.open(settings(tmp_path), SOURCE, CLOCK, os.urandom)
    spool.put(record(1), denial=False, urgent=urgent)
    async with asyncio.timeout(20):
        await spool.close(5)
    assert caplog.messages == []
    async with running_spool(tmp_path) as spool:
        assert eids(await shipped(spool)) == ["1"]


async def test_closing_gives_up_on_a_disk_that_hangs(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = await Spool.open(settings(tmp_path), SOURCE, CLOCK, os.urandom, disk)
    disk.hold()
    spool.put(record(1), denial=False)
    await asyncio.to_thread(disk.waiting.wait, 5)
    late = spool.put(record(2), denial=False)
    async with asyncio.timeout(20):
        await spool.close(0.1)
    with pytest.raises(SpoolUnwritable):
        await late.durable
    disk.release()


async def test_acknowledged_records_leave_nothing_in_memory(tmp_path: Path) -> None:
    await _check_memory(tmp_path, 200, 600, at_once=100)


@pytest.mark.deep(stands_in="test_acknowledged_records_leave_nothing_in_memory")
async def test_memory_does_not_grow_with_acknowledged_records(tmp_path: Path) -> None:
    await _check_memory(tmp_path, 3000, 20_000, at_once=1000)


async def _check_memory(tmp_path: Path, first: int, then: int, *, at_once: int) -> None:
    """Check that little memory is held after `first` records, and hardly more after `then` more.

    The writer's thread holds its last job until it runs again after its report, however long the
    machine lets it wait. So this waits for the memory to be free."""

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    async def through(spool: Spool, records: int) -> None:
        for _ in range(records // at_once):
            await keep(spool, *range(at_once))
            while (batch := await spool.batch(MIB)) is not None:
                await spool.acknowledge(batch.instance, batch.last_n)
            del batch

    async with running_spool(tmp_path) as spool:
        tracemalloc.start()
        try:
            await through(spool, first)
            await waiting.until_async("the first records leave", lambda: held() < 50_000)
            before = held()
            await through(spool, then)
            await waiting.until_async("the rest leave", lambda: held() - before < 50_000)
        finally:
            tracemalloc.stop()


async def test_a_bug_in_the_writer_ends_run(tmp_path: Path) -> None:
    class Buggy(FaultyDisk):
        def sync(self, descriptor: int) -> None:
            if self.broken:
                raise ValueError("a bug")
            super().sync(descriptor)

    disk = Buggy()
    spool = await Spool.open(settings(tmp_path), SOURCE, CLOCK, os.urandom, disk)
    loop = asyncio.create_task(spool.run())
    disk.breaks("sync")
    spool.put(record(), denial=False)
    with pytest.raises(ValueError, match="a bug"):
        await asyncio.wait_for(loop, 20)
    with pytest.raises(SpoolUnwritable):
        spool.put(record(), denial=True)
    await spool.close(0.1)
