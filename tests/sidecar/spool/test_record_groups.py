"""The records of one request are stored together or not at all, wherever it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.trail.record import Record
from sidecar.spool import Spool, SpoolError, SpoolFull, SpoolSlow
from sidecar.spool.recovery import recover
from sidecar.spool.storage.disk import Disk
from tests.sidecar.spool.running_spool import (
    MIB,
    SEGMENT,
    SOURCE,
    FaultyDisk,
    eids,
    frames,
    instances,
    keep,
    record,
    running_spool,
    segments,
    shipped,
    spares,
)
from tests.support.waiting import until_async

LARGE = "q" * 10_000


def group(name: str, count: int, query: str | None = LARGE) -> list[Record]:
    return [record(f"{name}-{n}", query=query) for n in range(count)]


async def test_a_group_is_numbered_in_order_and_shares_one_future(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        placed = spool.put_together(group("a", 3), denial=False)
        assert len({each.core_hash for each in placed}) == 3
        assert len({id(each.durable) for each in placed}) == 1
        await placed[0].durable
        assert eids(await shipped(spool)) == ["a-0", "a-1", "a-2"]


async def test_memory_that_is_nearly_full_takes_all_of_a_group_or_none(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, memory_bytes=MIB) as spool:
        await keep(spool, "first")
        disk.hold()
        taken = 0
        while spool.bytes_waiting <= MIB:
            spool.put_together(group(str(taken), 30), denial=False)
            taken += 1
        with pytest.raises(SpoolSlow):
            spool.put_together(group("refused", 30), denial=False)
        disk.release()
        await until_async("everything is on disk", lambda: not spool.bytes_waiting)
        assert len(eids(await shipped(spool))) == 1 + 30 * taken


async def fill(spool: Spool, root: Path, count: int) -> int:
    """Groups of `count` large records until one is refused; how many were taken."""
    taken = 0
    while True:
        try:
            placed = spool.put_together(group(str(taken), count), denial=False)
        except SpoolFull:
            return taken
        await placed[0].durable
        taken += 1
        # A spare is made beside: it is not the speed that is tested.
        await until_async(
            "a spare segment is there, or the spool is full",
            lambda: str(spool.state.value) != "open" or spares(root),
        )


async def test_a_spool_that_is_full_holds_whole_groups(tmp_path: Path) -> None:
    async with running_spool(tmp_path, max_bytes=3 * MIB) as spool:
        taken = await fill(spool, tmp_path, 20)
        assert taken
        assert len(eids(await shipped(spool))) == 20 * taken


async def test_a_group_never_spans_two_segments(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        for number in range(9):
            placed = spool.put_together(group(str(number), 20), denial=False)
            await placed[0].durable
        files = [path.read_bytes() for path in segments(tmp_path)]
        assert len(files) > 1
        assert [len(list(frames(data))) % 20 for data in files] == [0] * len(files)


async def test_a_group_that_fits_no_segment_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        await keep(spool, "before")
        with pytest.raises(SpoolFull, match="do not fit in one segment"):
            spool.put_together(group("large", 120), denial=False)
        assert len(segments(tmp_path)) == 1
        await keep(spool, "after")
        assert eids(await shipped(spool)) == ["before", "after"]


async def test_one_record_that_is_too_large_refuses_the_whole_group(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        large = record("large", query="q" * 300_000)
        with pytest.raises(SpoolError):
            spool.put_together([*group("small", 2), large], denial=False)
        await keep(spool, "after")
        assert eids(await shipped(spool)) == ["after"]


async def test_best_effort_drops_all_of_a_group_or_none(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, mode="best_effort", memory_bytes=MIB) as spool:
        await keep(spool, "first")
        disk.hold()
        groups = [spool.put_together(group(str(n), 30), denial=False) for n in range(12)]
        kept = [all(each.stored for each in placed) for placed in groups]
        assert kept == [any(each.stored for each in placed) for placed in groups]
        assert True in kept
        assert False in kept
        disk.release()
        await until_async(
            "the lost records are counted", lambda: spool.lost == 30 * kept.count(False)
        )


async def test_a_crash_between_the_frames_of_a_group_leaves_none_of_it(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    async with running_spool(root) as spool:
        await keep(spool, "before")
        await spool.put_together(group("torn", 4, None), denial=False)[0].durable
    path = segments(root)[-1]
    content = path.read_bytes()
    places = list(frames(content))
    begin, end = places[1][0], places[-1][1]
    for torn in range(begin, end, 11):
        path.write_bytes(content[:torn].ljust(SEGMENT, b"\0"))
        found = recover(Disk(), root, SOURCE, SEGMENT)
        assert found.resumed is not None
        assert (found.resumed.n, found.resumed.offset) == (1, begin)
        # Zeroed on disk too: what is appended next is followed by nothing old.
        assert not any(path.read_bytes()[begin:])
    async with running_spool(root) as spool:
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["before", "later"]
    assert len(instances(root)) == 1


async def test_a_write_that_fails_half_way_leaves_none_of_a_group(tmp_path: Path) -> None:
    disk = FaultyDisk()
    root = tmp_path / "spool"
    async with running_spool(root, disk) as spool:
        await keep(spool, "before")
        disk.torn = 1500
        disk.breaks("write")
        placed = spool.put_together(group("torn", 4, None), denial=False)
        for each in placed:
            with pytest.raises(SpoolError):
                await each.durable
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        assert eids(await shipped(spool)) == ["before"]
