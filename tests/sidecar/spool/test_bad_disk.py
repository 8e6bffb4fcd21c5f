"""A disk that fails: no acknowledged record is lost, every loss is declared, no waiter hangs."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from sidecar.spool import Spool, SpoolUnwritable, State
from sidecar.spool.storage.disk import takes_new_files
from tests.sidecar.spool.running_spool import (
    CLOCK,
    MIB,
    SEGMENT,
    SOURCE,
    FaultyDisk,
    eids,
    gaps,
    instances,
    keep,
    keep_large,
    record,
    running_spool,
    segments,
    settings,
    shipped,
)
from tests.support.waiting import until_async


def held(root: Path) -> int:
    """Bytes of all segment files."""
    return sum(path.stat().st_size for path in root.rglob("*.seg"))


async def test_a_spool_that_takes_no_new_files_does_not_open(stopped_spool: Path) -> None:
    disk = FaultyDisk()
    disk.breaks("require_new_files", code=errno.EACCES)
    for _ in range(2):  # the first one must not keep the directory locked
        with pytest.raises(SpoolUnwritable, match=r"can't be opened: EACCES .*`.*/spool`"):
            await Spool.open(settings(stopped_spool), SOURCE, CLOCK, os.urandom, disk)
    disk.heals()
    async with running_spool(stopped_spool, disk) as spool:
        assert spool.depth == 5


def test_whether_a_directory_takes_new_files_depends_on_its_mode_and_the_user(
    tmp_path: Path,
) -> None:
    def asked() -> int:
        # A process of its own, since a user holds for all threads. Root may do anything.
        if (child := os.fork()) == 0:
            os.chdir(tmp_path)  # the directories above it may be root's alone
            if os.geteuid() == 0:
                os.seteuid(65534)
            os._exit(takes_new_files(Path()))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    for mode, takes in ((0o777, True), (0o555, False), (0o700, os.geteuid() != 0)):
        tmp_path.chmod(mode)
        assert asked() == takes


@pytest.mark.parametrize("operation", ["sync", "write"])
async def test_after_a_failure_a_new_instance_begins_with_a_gap(
    tmp_path: Path, operation: str
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, 0, 1, 2)
        former = spool.instance
        disk.breaks(operation)
        lost = [spool.put(record("lost"), denial=False) for _ in range(4)]
        for placed in lost:
            with pytest.raises(SpoolUnwritable):
                await placed.durable
        assert spool.state is State.UNWRITABLE
        with pytest.raises(SpoolUnwritable):
            spool.put(record("refused"), denial=True)
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        await keep(spool, "later")
        cores = await shipped(spool)
        assert (spool.gaps, spool.lost) == (1, 4)
        assert spool.sync_failures >= 1
    assert eids(cores) == ["0", "1", "2", "later"]
    (gap,) = gaps(cores)
    assert (gap["instance"], gap["first"], gap["lost"]) == (former, 3, 4)
    first = cores[3]
    assert (first["kind"], first["src"]["n"], first["src"]["prev"]) == ("gap", 0, "")


async def test_a_full_disk_is_named_with_its_place_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.breaks("sync", code=errno.ENOSPC)
        with pytest.raises(SpoolUnwritable):
            await spool.put(record("lost"), denial=False).durable
        fault = spool.disk_fault
        assert fault == "ENOSPC (no space left on device)"
        told = f"the spool: a write failed: {fault} at `{tmp_path}`"
        assert told in caplog.messages
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        assert spool.disk_fault is None
    assert caplog.messages[-1] == "recovered: the spool takes records again"
    assert caplog.messages.count(told) == 1
    assert "Errno" not in caplog.text


async def test_a_failed_file_is_never_synced_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, 0)
        (segment,) = segments(tmp_path)
        disk.breaks("sync")
        with pytest.raises(SpoolUnwritable):
            await spool.put(record("lost"), denial=False).durable
        disk.heals()
        before = segment.read_bytes()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        await keep(spool, *range(20))
        assert segment.read_bytes() == before


async def test_records_gathered_after_a_failing_batch_fail_with_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.hold()
        first = spool.put(record("a"), denial=False)
        await asyncio.to_thread(disk.waiting.wait, 5)
        second = spool.put(record("b"), denial=False)
        disk.breaks("sync")
        disk.release()
        for placed in (first, second):
            with pytest.raises(SpoolUnwritable):
                await placed.durable
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        assert gaps(await shipped(spool))[0]["lost"] == 2


async def test_unsynced_records_are_not_shipped_while_the_process_lives(tmp_path: Path) -> None:
    """The bytes of a failed batch may well be in the file, and must not be in the log."""
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, 0)
        disk.breaks("sync")
        with pytest.raises(SpoolUnwritable):
            await spool.put(record("unsynced"), denial=False).durable
        assert b"unsynced" in next(instances(tmp_path)[0].glob("*.seg")).read_bytes()
        assert eids(await shipped(spool)) == ["0"]
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        assert not eids(await shipped(spool))


async def test_unsynced_records_are_not_shipped_after_a_restart_either(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, 0)
        disk.breaks("sync")
        with pytest.raises(SpoolUnwritable):
            await spool.put(record("unsynced"), denial=False).durable
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
    async with running_spool(tmp_path) as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["0"]
    assert len(gaps(cores)) == 1


async def test_while_the_disk_stays_bad_puts_fail_at_once_and_the_directory_does_not_grow(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, 0)
        disk.breaks("sync")
        with pytest.raises(SpoolUnwritable):
            await spool.put(record("lost"), denial=False).durable
        await until_async("the disk has failed", lambda: spool.sync_failures >= 4)
        with pytest.raises(SpoolUnwritable):
            spool.put(record("refused"), denial=True)
        await until_async("old instances are removed", lambda: len(instances(tmp_path)) <= 2)
        assert spool.bytes_held <= 4 * MIB
        assert spool.depth == 1
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        cores = await shipped(spool)
    assert eids(cores) == ["0"]
    # However often it was retried, the loss is declared once.
    assert [(gap["first"], gap["lost"]) for gap in gaps(cores)] == [(1, 1)]


async def test_pauses_between_attempts_grow(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        disk.breaks("sync")
        with pytest.raises(SpoolUnwritable):
            await spool.put(record("lost"), denial=False).durable
        await asyncio.sleep(1)
        assert spool.sync_failures < 8


@pytest.mark.parametrize("operation", ["make_directory", "rename", "sync_directory"])
async def test_a_new_instance_that_can_not_be_made_is_tried_again(
    tmp_path: Path, operation: str
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, 0)
        disk.breaks("sync", operation)
        with pytest.raises(SpoolUnwritable):
            await spool.put(record("lost"), denial=False).durable
        await until_async("the disk has failed", lambda: spool.sync_failures >= 2)
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        await keep(spool, "later")
        cores = await shipped(spool)
        # What failed leaves neither files nor a wrong count of them.
        await until_async(
            "the space is freed", lambda: spool.bytes_held == held(tmp_path) == 3 * SEGMENT
        )
    assert eids(cores) == ["0", "later"]
    assert len(gaps(cores)) == 1


async def test_a_failure_between_two_segments_loses_only_unsynced_records(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        kept = 0
        while len(segments(tmp_path)) == 1:
            try:
                await keep_large(spool, record(kept, query="q" * 50_000))
            except SpoolUnwritable:
                break
            kept += 1
            if kept == 15:
                disk.breaks("rename")
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        cores = await shipped(spool)
    assert eids(cores) == [str(n) for n in range(kept)]
    assert gaps(cores)[0]["first"] == kept


async def test_the_spool_opens_on_a_disk_that_takes_nothing_and_refuses(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.breaks("sync", "create_zeroed")
    async with running_spool(tmp_path, disk) as spool:
        assert spool.state is State.UNWRITABLE
        with pytest.raises(SpoolUnwritable):
            spool.put(record(), denial=True)
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        await keep(spool, 0)
        cores = await shipped(spool)
    assert eids(cores) == ["0"]
    # Nothing had been taken, so nothing is lost.
    assert not gaps(cores)


async def test_a_disk_that_fails_to_read_loses_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, 0, 1)
        disk.breaks("read")
        with pytest.raises(OSError, match="error"):
            await spool.batch(MIB)
        disk.heals()
        assert eids(await shipped(spool)) == ["0", "1"]


async def test_segments_that_can_not_be_removed_do_not_stop_shipping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.spool.spool.RETAINED_FRACTION", 1 << 40)
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        for n in range(60):
            await keep_large(spool, record(n, query="q" * 50_000))
        disk.breaks("remove", "note")
        assert len(eids(await shipped(spool))) == 60
        assert spool.depth == 0
        before = spool.bytes_held
        await until_async("the space is freed", lambda: spool.bytes_held == held(tmp_path))
    async with running_spool(tmp_path) as spool:
        # What was not noted is sent again, and passed over there.
        await shipped(spool)
        assert spool.bytes_held < before


async def test_a_segment_that_could_not_be_removed_is_removed_later_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sidecar.spool.spool.RETAINED_FRACTION", 1 << 40)
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        for n in range(25):
            await keep_large(spool, record(n, query="q" * 50_000))
        (full, _) = segments(tmp_path)
        disk.breaks("remove", "note", code=errno.EACCES)
        assert len(eids(await shipped(spool))) == 25
        denied = f"EACCES (permission denied) at `{full}`"
        told = f"tidying the spool: a shipped segment can't be removed: {denied}"
        assert caplog.messages.count(told) == 1
        before = spool.bytes_held
        # One of two works again, so one of two outages has ended.
        del disk.broken["note"]
        await keep(spool, "noted")
        await shipped(spool)
        assert caplog.messages[-1] == "recovered: acknowledgements are noted again"
        assert full.exists()
        disk.heals()
        await keep(spool, "later")
        await shipped(spool)
        assert caplog.messages[-1] == "recovered: shipped segments are removed again"
        assert not full.exists()
        assert spool.bytes_held == before - SEGMENT


async def test_a_crash_while_the_disk_is_bad_loses_nothing_acknowledged(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = await Spool.open(settings(tmp_path), SOURCE, CLOCK, os.urandom, disk)
    await keep(spool, *range(5))
    disk.breaks("sync", "put", "note")
    with pytest.raises(SpoolUnwritable):
        await spool.put(record("lost"), denial=False).durable
    # Not even the ending could be saved, and nothing is from now on: as if the process were killed.
    await spool.close(1)
    async with running_spool(tmp_path) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    kept = eids(cores)
    assert kept[:5] == ["0", "1", "2", "3", "4"]
    assert kept[-1] == "later"
