"""What a start finds after a crash at every point where one may happen."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.ground.clock import Clock
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import Ending, read_ending, write_ending
from tests.sidecar.spool.running_spool import (
    CLOCK,
    SEGMENT,
    FaultyDisk,
    check_chain,
    eids,
    gaps,
    instances,
    keep,
    running_spool,
    segments,
    shipped,
)
from tests.sidecar.spool.stopped_segment import frames_of, overwrite
from tests.support.waiting import until_async


async def test_a_clean_stop_continues_in_the_same_instance(stopped_spool: Path) -> None:
    name = instances(stopped_spool)[0].name
    async with running_spool(stopped_spool) as spool:
        assert name.endswith(spool.instance)
        assert spool.depth == 5
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "4", "later"]
    assert not gaps(cores)


async def test_a_crash_while_an_instance_is_made_leaves_nothing_behind(stopped_spool: Path) -> None:
    for ordinal, files in ((2, ()), (3, (f"{0:020d}.seg",)), (4, ("ended.tmp",))):
        directory = stopped_spool / f"{ordinal:08d}-{ordinal:032x}"
        directory.mkdir()
        for name in files:
            (directory / name).write_bytes(bytes(SEGMENT))
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["0", "1", "2", "3", "4", "later"]
    assert len(instances(stopped_spool)) == 1


async def test_a_crash_while_an_instance_is_removed_is_not_taken_for_a_loss(
    stopped_spool: Path,
) -> None:
    async with running_spool(stopped_spool, source="sidecar-2") as spool:
        await keep(spool, "later")
    old = instances(stopped_spool)[0]
    old.rename(old.with_name(old.name + ".tmp"))
    next(stopped_spool.glob("*.tmp/*.seg")).unlink()
    async with running_spool(stopped_spool, source="sidecar-2") as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert not gaps(cores)
    assert not list(stopped_spool.glob("*.tmp"))


async def test_a_crash_between_a_new_segment_and_its_header_continues_in_the_old(
    stopped_spool: Path,
) -> None:
    (instances(stopped_spool)[0] / f"{5:020d}.seg").write_bytes(bytes(SEGMENT))
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["0", "1", "2", "3", "4", "later"]
    assert len(segments(stopped_spool)) == 1


async def test_a_crash_in_the_first_write_of_a_segment_continues_in_the_old(
    stopped_spool: Path,
) -> None:
    torn = segments(stopped_spool)[-1].read_bytes()[:40]
    (instances(stopped_spool)[0] / f"{5:020d}.seg").write_bytes(torn.ljust(SEGMENT, b"\0"))
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["0", "1", "2", "3", "4", "later"]


async def test_unfinished_and_unusable_spares_are_removed(stopped_spool: Path) -> None:
    (stopped_spool / "spare-00000099.seg.tmp").write_bytes(b"half")
    (stopped_spool / "spare-00000001.seg").write_bytes(bytes(1000))
    (stopped_spool / "spare-00000002.seg").write_bytes(bytes(SEGMENT))
    (stopped_spool / "spare-00000003.seg").write_bytes(bytes(SEGMENT))
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        assert spool.bytes_held == 3 * SEGMENT
    assert len(list(stopped_spool.glob("spare-*"))) == 2


async def test_an_instance_without_records_continues(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        first = spool.instance
    async with running_spool(tmp_path) as spool:
        assert spool.instance == first
        await keep(spool, 0)
        assert eids(await shipped(spool)) == ["0"]


async def test_acknowledged_records_are_not_sent_again_after_a_restart(stopped_spool: Path) -> None:
    async with running_spool(stopped_spool) as spool:
        batch = await spool.batch(1, 1)
        assert batch is not None
        await spool.acknowledge(batch.instance, 2)
    # An hour later: a restart makes what waits no younger.
    clock = Clock(lambda: CLOCK.now() + 3_600_000_000, CLOCK.monotonic)
    async with running_spool(stopped_spool, clock=clock) as spool:
        assert spool.depth == 2
        await keep(spool, "later")
        assert 3600 <= spool.oldest_age() < 3660
        batch = await spool.batch(SEGMENT, 2)
        assert batch is not None
        assert (batch.first_n, batch.last_n) == (3, 4)
        await spool.acknowledge(batch.instance, 4)
        assert spool.oldest_age() < 60
        assert eids(await shipped(spool)) == ["later"]
        assert spool.oldest_age() == 0


@pytest.mark.parametrize("note", [b"", b"half", b"\0" * 12, b"\xff" * 12])
async def test_a_lost_note_of_acknowledgements_causes_only_a_second_sending(
    stopped_spool: Path, note: bytes
) -> None:
    async with running_spool(stopped_spool) as spool:
        await shipped(spool)
    (instances(stopped_spool)[0] / "acked").write_bytes(note)
    async with running_spool(stopped_spool) as spool:
        assert len(await shipped(spool)) == 5


async def test_a_spool_without_records_that_were_acknowledged_uses_no_number_again(
    stopped_spool: Path,
) -> None:
    """A directory restored from an older copy, except for the note."""
    async with running_spool(stopped_spool) as spool:
        await shipped(spool)
    start, _ = frames_of(stopped_spool)[3]
    overwrite(stopped_spool, start, bytes(SEGMENT - start))
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (3, None)


async def test_a_spool_whose_segments_are_missing_declares_a_gap(stopped_spool: Path) -> None:
    async with running_spool(stopped_spool) as spool:
        await shipped(spool)
    segments(stopped_spool)[0].unlink()
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (5, None)
    assert len(instances(stopped_spool)) == 1


async def test_another_source_id_begins_another_instance_and_ships_the_old(
    stopped_spool: Path,
) -> None:
    async with running_spool(stopped_spool, source="sidecar-2") as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "4", "later"]
    assert [core["src"]["id"] for core in cores] == [*["sidecar-1"] * 5, "sidecar-2"]
    assert not gaps(cores)
    assert len(instances(stopped_spool)) == 1


async def test_an_ending_not_known_to_be_declared_is_declared_at_the_next_start(
    stopped_spool: Path,
) -> None:
    directory = instances(stopped_spool)[0]
    write_ending(Disk(), directory, Ending("a write to the disk failed", 3, 2))
    async with running_spool(stopped_spool) as spool:
        await until_async("the gap is declared", lambda: spool.gaps == 1)
        cores = await shipped(spool)
        cores += await shipped(spool)
    # What lies beyond the ending was declared lost, and does not ship although it can be read.
    assert eids(cores) == ["0", "1", "2"]
    assert [(gap["first"], gap["lost"]) for gap in gaps(cores)] == [(3, 2)]
    async with running_spool(stopped_spool) as spool:
        assert not await shipped(spool)


async def test_a_declared_ending_is_not_declared_again(stopped_spool: Path) -> None:
    directory = instances(stopped_spool)[0]
    write_ending(Disk(), directory, Ending("as before", 3, 2, declared=True))
    assert read_ending(Disk(), directory) == Ending("as before", 3, 2, declared=True)
    async with running_spool(stopped_spool) as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2"]
    assert not gaps(cores)


async def test_an_instance_with_an_unreadable_ending_still_ends(stopped_spool: Path) -> None:
    former = instances(stopped_spool)[0]
    (former / "ended").write_bytes(b"{")
    async with running_spool(stopped_spool) as spool:
        cores = await shipped(spool)
        assert not former.name.endswith(spool.instance)
    assert eids(cores) == ["0", "1", "2", "3", "4"]
    assert gaps(cores)[0]["lost"] is None


async def test_the_tail_is_written_again_before_anything_is_appended(stopped_spool: Path) -> None:
    """After a failed sync in the previous process, the kernel may show data that the disk does not
    hold."""
    disk = FaultyDisk()
    async with running_spool(stopped_spool, disk) as spool:
        await keep(spool, "later")
    assert disk.calls.index("rewrite") < disk.calls.index("sync")


async def test_a_tail_that_can_not_be_written_again_is_left_for_a_new_instance(
    stopped_spool: Path,
) -> None:
    disk = FaultyDisk()
    disk.breaks("rewrite")
    async with running_spool(stopped_spool, disk) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(check_chain(cores)) == ["0", "1", "2", "3", "4", "later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (5, 0)
