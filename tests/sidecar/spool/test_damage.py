"""What the next start makes of torn writes, flipped bits and missing files."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterable
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from sidecar.spool import State
from sidecar.spool.recovery import recover
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import FRAME
from tests.sidecar.spool.running_spool import (
    SEGMENT,
    SOURCE,
    FaultyDisk,
    eids,
    frames,
    gaps,
    instances,
    keep,
    keep_large,
    record,
    running_spool,
    segments,
    shipped,
)
from tests.sidecar.spool.stopped_segment import frames_of, overwrite
from tests.support.properties import examples
from tests.support.waiting import until_async


@pytest.mark.deep(
    stands_in="tests/sidecar/spool/test_record_groups.py::test_a_crash_between_the_frames_of_a_group_leaves_none_of_it"
)
def test_a_tail_torn_at_any_byte_is_cut_and_the_rest_kept(stopped_spool: Path) -> None:
    path = segments(stopped_spool)[-1]
    content = path.read_bytes()
    start, end = frames_of(stopped_spool)[-1]
    for torn in range(start, end):
        path.write_bytes(content[:torn].ljust(SEGMENT, b"\0"))
        found = recover(Disk(), stopped_spool, SOURCE, SEGMENT)
        assert found.resumed is not None
        assert (found.resumed.n, found.resumed.offset) == (4, start)
        assert not found.undeclared
        # Cut for good: nothing of the torn frame may look like a later one.
        assert path.read_bytes() == content[:start].ljust(SEGMENT, b"\0")


def test_a_file_cut_short_at_any_byte_is_read_too(stopped_spool: Path) -> None:
    path = segments(stopped_spool)[-1]
    content = path.read_bytes()
    start, end = frames_of(stopped_spool)[-1]
    for torn in range(start, end, 7):
        path.write_bytes(content[:torn])
        found = recover(Disk(), stopped_spool, SOURCE, SEGMENT)
        assert found.resumed is not None
        assert found.resumed.n == 4


@pytest.mark.parametrize("part", [0.0, 0.02, 0.3, 0.9, 1.0])
async def test_the_chain_continues_after_a_cut(stopped_spool: Path, part: float) -> None:
    start, end = frames_of(stopped_spool)[-1]
    torn = start + int((end - 1 - start) * part)
    overwrite(stopped_spool, torn, bytes(end - torn))
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "later"]
    assert not gaps(cores)


def test_a_bit_flipped_in_any_field_of_a_frame_ends_the_instance_before_it(
    stopped_spool: Path,
) -> None:
    start, end = frames_of(stopped_spool)[1]
    _check_flipped(stopped_spool, [*range(start, start + FRAME, 3), end - 1])


@pytest.mark.deep(
    stands_in="test_a_bit_flipped_in_any_field_of_a_frame_ends_the_instance_before_it"
)
def test_a_bit_flipped_anywhere_in_the_middle_ends_the_instance_before_it(
    stopped_spool: Path,
) -> None:
    _check_flipped(stopped_spool, range(*frames_of(stopped_spool)[1]))


def _check_flipped(stopped_spool: Path, places: Iterable[int]) -> None:
    """Each place lies in the second frame of five."""
    path = segments(stopped_spool)[-1]
    content = path.read_bytes()
    for at in places:
        flipped = bytearray(content)
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        found = recover(Disk(), stopped_spool, SOURCE, SEGMENT)
        assert found.resumed is None
        (ended,) = found.undeclared
        assert ended.end == 1
        assert ended.ending is not None
        assert (ended.ending.first, ended.ending.lost) == (1, 4)
        # Kept as it was found.
        assert path.read_bytes() == flipped


@pytest.mark.parametrize("frame", [0, 1, 3])
async def test_a_bad_frame_is_declared_first_and_its_file_is_kept(
    stopped_spool: Path, frame: int
) -> None:
    former = instances(stopped_spool)[0]
    overwrite(stopped_spool, frames_of(stopped_spool)[frame][0] + 30, b"\xff\xff")
    before = segments(stopped_spool)[-1].read_bytes()
    async with running_spool(stopped_spool) as spool:
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
    kept = stopped_spool / f"damaged-{former.name}" / f"{0:020d}.seg"
    assert kept.read_bytes() == before
    async with running_spool(stopped_spool) as spool:
        assert spool.gaps == 0
        assert not gaps(await shipped(spool))


async def test_a_hole_in_the_last_batch_is_declared_not_closed_up(stopped_spool: Path) -> None:
    """After a power cut one page of the last batch may be missing and a later one there."""
    start, end = frames_of(stopped_spool)[2]
    overwrite(stopped_spool, start, bytes(end - start))
    async with running_spool(stopped_spool) as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1"]
    assert gaps(cores)[0]["lost"] == 3


async def test_a_bad_header_before_good_frames_is_damage(stopped_spool: Path) -> None:
    overwrite(stopped_spool, 20, b"\xff")
    async with running_spool(stopped_spool) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
    assert eids(cores) == ["later"]
    assert (gaps(cores)[0]["first"], gaps(cores)[0]["lost"]) == (0, 5)


async def test_a_bad_frame_in_an_old_segment_is_found_when_it_ships(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        for n in range(60):
            await keep_large(spool, record(n, query="q" * 50_000))
    old = segments(tmp_path)[0]
    data = bytearray(old.read_bytes())
    data[list(frames(bytes(data)))[3][0] + 1000] ^= 1
    old.write_bytes(data)
    async with running_spool(tmp_path) as spool:
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


async def test_a_missing_segment_is_found_when_it_ships(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        for n in range(60):
            await keep_large(spool, record(n, query="q" * 50_000))
        second = int(segments(tmp_path)[1].stem)
    segments(tmp_path)[1].unlink()
    async with running_spool(tmp_path) as spool:
        cores = await shipped(spool)
        await until_async("the gap is declared", lambda: spool.gaps == 1)
        cores += await shipped(spool)
    assert eids(cores) == [str(n) for n in range(second)]
    assert gaps(cores)[0]["lost"] == 60 - second


async def test_damage_in_an_older_instance_is_declared_in_the_current_one(
    stopped_spool: Path,
) -> None:
    disk = FaultyDisk()
    async with running_spool(stopped_spool, disk) as spool:
        disk.breaks("sync")
        spool.put(record("lost"), denial=False)
        await until_async("the spool refuses records", lambda: spool.refusal is not None)
        disk.heals()
        await until_async("the spool is open", lambda: spool.state is State.OPEN)
        current = spool.instance
    older = instances(stopped_spool)[0]
    path = next(older.glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[list(frames(bytes(data)))[2][0] + 30] ^= 1
    path.write_bytes(data)
    async with running_spool(stopped_spool) as spool:
        cores = await shipped(spool)
        await until_async("the gap is declared", lambda: spool.gaps == 1)
        cores += await shipped(spool)
        assert spool.instance == current
    assert eids(cores) == ["0", "1"]
    declared = gaps(cores)
    assert [(gap["first"], gap["lost"]) for gap in declared] == [(5, 1), (2, 4)]
    assert list(stopped_spool.glob("damaged-*"))


async def test_a_copied_directory_under_another_name_is_not_mistaken(stopped_spool: Path) -> None:
    directory = instances(stopped_spool)[0]
    shutil.copytree(directory, stopped_spool / f"{2:08d}-{'e' * 32}")
    async with running_spool(stopped_spool) as spool:
        cores = await shipped(spool)
    assert eids(cores) == ["0", "1", "2", "3", "4"]
    assert gaps(cores)[0]["lost"] == 5


@pytest.fixture(scope="module")
def pristine_spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool of five records, to be copied."""
    root = tmp_path_factory.mktemp("whole") / "spool"

    async def make() -> None:
        async with running_spool(root) as spool:
            await keep(spool, *range(5))

    asyncio.run(make())
    return root


def test_records_before_a_tail_of_rubbish_or_zeros_are_kept(pristine_spool: Path) -> None:
    # In the first frame, before good ones, and in the last.
    for at, tail in itertools.product(
        (0.01, 0.5, 0.99), (b"\xff" * 40, b'{"a":1}' * 40, bytes(40))
    ):
        for rest in (False, True):
            _check_tail(pristine_spool, at, tail, zeros=False, rest=rest)


@pytest.mark.deep(stands_in="test_records_before_a_tail_of_rubbish_or_zeros_are_kept")
@examples(150)
@hypothesis.given(
    at=st.floats(0, 1), rubbish=st.binary(max_size=600), zeros=st.booleans(), rest=st.booleans()
)
def test_records_before_a_tail_of_any_content_are_kept(
    pristine_spool: Path, at: float, rubbish: bytes, zeros: bool, rest: bool
) -> None:
    _check_tail(pristine_spool, at, rubbish, zeros=zeros, rest=rest)


def _check_tail(
    pristine_spool: Path, at: float, rubbish: bytes, *, zeros: bool, rest: bool
) -> None:
    root = pristine_spool.with_name("spoiled")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(pristine_spool, root)
    path = segments(root)[0]
    data = path.read_bytes()
    placed = list(frames(data))
    cut = int(at * placed[-1][1])
    spoiled = data[:cut] + (bytes(len(rubbish)) if zeros else rubbish)
    spoiled += data[len(spoiled) :] if rest else b""
    path.write_bytes(spoiled.ljust(SEGMENT, b"\0")[:SEGMENT])
    found = recover(Disk(), root, SOURCE, SEGMENT)
    complete = sum(1 for _, end in placed if end <= cut)
    assert sum(instance.end for instance in found.instances) >= complete
    if found.instances:
        # Either it goes on right behind what is good, or a loss is to be declared.
        assert (found.resumed is not None) == (not found.undeclared)
