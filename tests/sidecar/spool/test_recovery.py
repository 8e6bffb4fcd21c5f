"""What a start finds after a crash at every point where one may happen."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from sidecar.spool import State
from sidecar.spool.recovery import recover
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import Ending, read_ending, write_ending
from tests.properties import examples
from tests.sidecar.spool.parts import (
    SEGMENT,
    SOURCE,
    FaultyDisk,
    check_chain,
    eids,
    frames,
    gaps,
    instances,
    keep,
    record,
    running,
    segments,
    shipped,
    until,
)


@pytest.fixture
async def five(tmp_path: Path) -> Path:
    """A spool that was stopped with five records in one segment."""
    root = tmp_path / "spool"
    async with running(root) as spool:
        await keep(spool, *range(5))
    return root


def spoil(root: Path, at: int, data: bytes) -> None:
    """Overwrite bytes of the newest segment."""
    path = segments(root)[-1]
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(whole)


def placed(root: Path) -> list[tuple[int, int]]:
    return list(frames(segments(root)[-1].read_bytes()))


async def test_a_clean_stop_goes_on_in_the_same_instance(five: Path) -> None:
    name = instances(five)[0].name
    async with running(five) as spool:
        assert name.endswith(spool.instance)
        assert spool.depth == 5
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "4", "later"]
    assert not gaps(cores)


def test_a_tail_torn_at_any_byte_is_cut_and_the_rest_kept(five: Path) -> None:
    path = segments(five)[-1]
    whole = path.read_bytes()
    start, end = placed(five)[-1]
    for torn in range(start, end):
        path.write_bytes(whole[:torn].ljust(SEGMENT, b"\0"))
        found = recover(Disk(), five, SOURCE, SEGMENT)
        assert found.resumed is not None
        assert (found.resumed.n, found.resumed.offset) == (4, start)
        assert not found.undeclared
        # Cut for good: nothing of the torn frame may look like a later one.
        assert path.read_bytes() == whole[:start].ljust(SEGMENT, b"\0")


def test_a_file_cut_short_at_any_byte_is_understood_too(five: Path) -> None:
    path = segments(five)[-1]
    whole = path.read_bytes()
    start, end = placed(five)[-1]
    for torn in range(start, end, 7):
        path.write_bytes(whole[:torn])
        found = recover(Disk(), five, SOURCE, SEGMENT)
        assert found.resumed is not None
        assert found.resumed.n == 4


@pytest.mark.parametrize("part", [0.0, 0.02, 0.3, 0.9, 1.0])
async def test_after_a_cut_the_chain_goes_on(five: Path, part: float) -> None:
    start, end = placed(five)[-1]
    torn = start + int((end - 1 - start) * part)
    spoil(five, torn, bytes(end - torn))
    async with running(five) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "later"]
    assert not gaps(cores)


def test_a_bit_flipped_anywhere_in_the_middle_ends_the_instance_before_it(five: Path) -> None:
    path = segments(five)[-1]
    whole = path.read_bytes()
    start, end = placed(five)[1]
    for at in range(start, end):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        found = recover(Disk(), five, SOURCE, SEGMENT)
        assert found.resumed is None
        (ended,) = found.undeclared
        assert ended.end == 1
        assert ended.ending is not None
        assert (ended.ending.first, ended.ending.lost) == (1, 4)
        # Kept as it was found.
        assert path.read_bytes() == flipped


@pytest.mark.parametrize("frame", [0, 1, 3])
async def test_a_bad_frame_is_declared_first_and_its_file_is_kept(five: Path, frame: int) -> None:
    former = instances(five)[0]
    spoil(five, placed(five)[frame][0] + 30, b"\xff\xff")
    before = segments(five)[-1].read_bytes()
    async with running(five) as spool:
        assert spool.gaps == 1
        assert spool.lost == 5 - frame
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == [*map(str, range(frame)), "later"]
    (gap,) = gaps(cores)
    assert (gap["instance"], gap["first"], gap["lost"]) == (
        former.name.split("-")[1],
        frame,
        5 - frame,
    )
    # It is the first of the instance that follows, and that is another one.
    follower = next(core for core in cores if core["kind"] == "gap")
    assert follower["src"]["n"] == 0
    assert follower["src"]["inst"] != gap["instance"]
    kept = five / f"damaged-{former.name}" / f"{0:020d}.seg"
    assert kept.read_bytes() == before
    async with running(five) as spool:
        assert spool.gaps == 0
        assert not gaps(await shipped(spool))


async def test_a_hole_in_the_last_batch_is_declared_not_closed_up(five: Path) -> None:
    """After a power cut one page of the last batch may be missing and a later one there."""
    start, end = placed(five)[2]
    spoil(five, start, bytes(end - start))
    async with running(five) as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1"]
    assert gaps(cores)[0]["lost"] == 3


async def test_a_bad_header_before_good_frames_is_damage(five: Path) -> None:
    spoil(five, 20, b"\xff")
    async with running(five) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (0, 5)


async def test_a_bad_frame_in_an_old_segment_is_found_when_it_ships(tmp_path: Path) -> None:
    async with running(tmp_path) as spool:
        for n in range(60):
            await spool.put(record(n, query="q" * 50_000), denial=False).durable
    old = segments(tmp_path)[0]
    data = bytearray(old.read_bytes())
    data[list(frames(bytes(data)))[3][0] + 1000] ^= 1
    old.write_bytes(data)
    async with running(tmp_path) as spool:
        assert spool.depth == 60
        former = spool.instance
        cores = await shipped(spool)
        # The new instance takes over at once: nothing is refused meanwhile.
        assert spool.instance != former
        assert spool.refusal is None
        await keep(spool, "later")
        cores += await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "later"]
    (gap,) = gaps(cores)
    assert (gap["instance"], gap["first"], gap["lost"]) == (former, 3, 57)
    assert len(list(tmp_path.glob("damaged-*/*.seg"))) > 1


async def test_a_segment_that_is_missing_is_found_when_it_ships(tmp_path: Path) -> None:
    async with running(tmp_path) as spool:
        for n in range(60):
            await spool.put(record(n, query="q" * 50_000), denial=False).durable
        second = int(segments(tmp_path)[1].stem)
    segments(tmp_path)[1].unlink()
    async with running(tmp_path) as spool:
        cores = await shipped(spool)
        await until(lambda: spool.gaps == 1)
        cores += await shipped(spool)
    assert eids(cores) == [str(n) for n in range(second)]
    assert gaps(cores)[0]["lost"] == 60 - second


async def test_damage_in_an_older_instance_is_declared_in_the_current_one(five: Path) -> None:
    disk = FaultyDisk()
    async with running(five, disk) as spool:
        disk.breaks("sync")
        spool.put(record("lost"), denial=False)
        await until(lambda: spool.refusal is not None)
        disk.heals()
        await until(lambda: spool.state is State.OPEN)
        current = spool.instance
    older = instances(five)[0]
    path = next(older.glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[list(frames(bytes(data)))[2][0] + 30] ^= 1
    path.write_bytes(data)
    async with running(five) as spool:
        cores = await shipped(spool)
        await until(lambda: spool.gaps == 1)
        cores += await shipped(spool)
        assert spool.instance == current
    assert eids(cores) == ["0", "1"]
    declared = gaps(cores)
    assert [(gap["first"], gap["lost"]) for gap in declared] == [(5, 1), (2, 4)]
    assert list(five.glob("damaged-*"))


async def test_a_crash_while_an_instance_is_made_leaves_nothing_behind(five: Path) -> None:
    for ordinal, files in ((2, ()), (3, (f"{0:020d}.seg",)), (4, ("ended.tmp",))):
        directory = five / f"{ordinal:08d}-{ordinal:032x}"
        directory.mkdir()
        for name in files:
            (directory / name).write_bytes(bytes(SEGMENT))
    async with running(five) as spool:
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["0", "1", "2", "3", "4", "later"]
    assert len(instances(five)) == 1


async def test_a_crash_while_an_instance_is_removed_is_not_taken_for_a_loss(five: Path) -> None:
    async with running(five, source="sidecar-2") as spool:
        await keep(spool, "later")
    old = instances(five)[0]
    old.rename(old.with_name(old.name + ".tmp"))
    next(five.glob("*.tmp/*.seg")).unlink()
    async with running(five, source="sidecar-2") as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert not gaps(cores)
    assert not list(five.glob("*.tmp"))


async def test_a_crash_between_a_new_segment_and_its_header_goes_on_in_the_old(five: Path) -> None:
    (instances(five)[0] / f"{5:020d}.seg").write_bytes(bytes(SEGMENT))
    async with running(five) as spool:
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["0", "1", "2", "3", "4", "later"]
    assert len(segments(five)) == 1


async def test_a_crash_in_the_first_write_of_a_segment_goes_on_in_the_old(five: Path) -> None:
    torn = segments(five)[-1].read_bytes()[:40]
    (instances(five)[0] / f"{5:020d}.seg").write_bytes(torn.ljust(SEGMENT, b"\0"))
    async with running(five) as spool:
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["0", "1", "2", "3", "4", "later"]


async def test_unfinished_and_unfit_spares_are_cleared_away(five: Path) -> None:
    (five / "spare-00000099.seg.tmp").write_bytes(b"half")
    (five / "spare-00000001.seg").write_bytes(bytes(1000))
    (five / "spare-00000002.seg").write_bytes(bytes(SEGMENT))
    (five / "spare-00000003.seg").write_bytes(bytes(SEGMENT))
    async with running(five) as spool:
        await keep(spool, "later")
        assert spool.bytes_held == 3 * SEGMENT
    assert len(list(five.glob("spare-*"))) == 2


async def test_an_instance_that_holds_nothing_yet_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as spool:
        first = spool.instance
    async with running(tmp_path) as spool:
        assert spool.instance == first
        await keep(spool, 0)
        assert eids(await shipped(spool)) == ["0"]


async def test_acknowledged_records_are_not_sent_again_after_a_restart(five: Path) -> None:
    async with running(five) as spool:
        batch = await spool.batch(1, 1)
        assert batch is not None
        await spool.acknowledge(batch.instance, 2)
    async with running(five) as spool:
        assert spool.depth == 2
        assert eids(await shipped(spool)) == ["3", "4"]


@pytest.mark.parametrize("note", [b"", b"half", b"\0" * 12, b"\xff" * 12])
async def test_a_lost_note_of_what_was_acknowledged_costs_sending_again(
    five: Path, note: bytes
) -> None:
    async with running(five) as spool:
        await shipped(spool)
    (instances(five)[0] / "acked").write_bytes(note)
    async with running(five) as spool:
        assert len(await shipped(spool)) == 5


async def test_a_spool_without_records_that_were_acknowledged_uses_no_number_again(
    five: Path,
) -> None:
    """A directory restored from an older copy, except for the note."""
    async with running(five) as spool:
        await shipped(spool)
    start, _ = placed(five)[3]
    spoil(five, start, bytes(SEGMENT - start))
    async with running(five) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (3, None)


async def test_a_spool_whose_segments_are_gone_says_so(five: Path) -> None:
    async with running(five) as spool:
        await shipped(spool)
    segments(five)[0].unlink()
    async with running(five) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (5, None)
    assert len(instances(five)) == 1


async def test_another_source_id_begins_another_instance_and_ships_the_old(five: Path) -> None:
    async with running(five, source="sidecar-2") as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "4", "later"]
    assert [core["src"]["id"] for core in cores] == [*["sidecar-1"] * 5, "sidecar-2"]
    assert not gaps(cores)
    assert len(instances(five)) == 1


async def test_an_ending_not_known_to_be_declared_is_declared_at_the_next_start(
    five: Path,
) -> None:
    directory = instances(five)[0]
    write_ending(Disk(), directory, Ending("a write to the disk failed", 3, 2))
    async with running(five) as spool:
        await until(lambda: spool.gaps == 1)
        cores = await shipped(spool)
        cores += await shipped(spool)
    # What lies beyond the ending was declared lost, and does not ship although it can be read.
    assert eids(cores) == ["0", "1", "2"]
    assert [(gap["first"], gap["lost"]) for gap in gaps(cores)] == [(3, 2)]
    async with running(five) as spool:
        assert not await shipped(spool)


async def test_a_declared_ending_is_not_declared_again(five: Path) -> None:
    directory = instances(five)[0]
    write_ending(Disk(), directory, Ending("as before", 3, 2, declared=True))
    assert read_ending(Disk(), directory) == Ending("as before", 3, 2, declared=True)
    async with running(five) as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2"]
    assert not gaps(cores)


async def test_an_ending_that_can_not_be_read_still_ends(five: Path) -> None:
    former = instances(five)[0]
    (former / "ended").write_bytes(b"{")
    async with running(five) as spool:
        cores = await shipped(spool)
        assert not former.name.endswith(spool.instance)
    assert eids(cores) == ["0", "1", "2", "3", "4"]
    assert gaps(cores)[0]["lost"] is None


async def test_the_tail_is_written_again_before_anything_is_appended(five: Path) -> None:
    """After a failed sync in the previous process, the kernel may show data that the disk does not
    hold."""
    disk = FaultyDisk()
    async with running(five, disk) as spool:
        await keep(spool, "later")
    assert disk.calls.index("rewrite") < disk.calls.index("sync")


async def test_a_tail_that_can_not_be_written_again_is_left_for_a_new_instance(
    five: Path,
) -> None:
    disk = FaultyDisk()
    disk.breaks("rewrite")
    async with running(five, disk) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(check_chain(cores)) == ["0", "1", "2", "3", "4", "later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (5, 0)


async def test_a_copied_directory_under_another_name_is_not_mistaken(five: Path) -> None:
    directory = instances(five)[0]
    shutil.copytree(directory, five / f"{2:08d}-{'e' * 32}")
    async with running(five) as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "4"]
    assert gaps(cores)[0]["lost"] == 5


@examples(150)
@hypothesis.given(
    at=st.floats(0, 1), rubbish=st.binary(max_size=600), zeros=st.booleans(), rest=st.booleans()
)
def test_whatever_the_tail_holds_what_stands_before_it_is_kept(
    copy: Path, at: float, rubbish: bytes, zeros: bool, rest: bool
) -> None:
    root = copy.with_name("spoiled")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(copy, root)
    path = segments(root)[0]
    data = path.read_bytes()
    placed = list(frames(data))
    cut = int(at * placed[-1][1])
    spoiled = data[:cut] + (bytes(len(rubbish)) if zeros else rubbish)
    spoiled += data[len(spoiled) :] if rest else b""
    path.write_bytes(spoiled.ljust(SEGMENT, b"\0")[:SEGMENT])
    found = recover(Disk(), root, SOURCE, SEGMENT)
    whole = sum(1 for _, end in placed if end <= cut)
    assert sum(instance.end for instance in found.instances) >= whole
    if found.instances:
        # Either it goes on right behind what is good, or a loss is to be declared.
        assert (found.resumed is not None) == (not found.undeclared)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool of five records, to be copied."""
    root = tmp_path_factory.mktemp("whole") / "spool"

    async def make() -> None:
        async with running(root) as spool:
            await keep(spool, *range(5))

    asyncio.run(make())
    return root
