"""The room runs out: ALLOWs first, denials last, and it comes back when records ship."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from policies.ground.process.outage_logger import PAUSE_SECONDS
from sidecar.spool import Spool, SpoolFull, State
from tests.sidecar.spool.running_spool import (
    CLOCK,
    MIB,
    SEGMENT,
    FaultyDisk,
    check_chain,
    eids,
    frames,
    gaps,
    keep,
    keep_large,
    record,
    running_spool,
    segments,
    shipped,
    spares,
)
from tests.support.waiting import until_async

LARGE = "q" * 50_000
SEGMENTS = 3


def state(spool: Spool) -> str:
    """In a word, which changes from one line to the next."""
    return spool.state.value


async def fill(spool: Spool, root: Path, *, denial: bool, prefix: str) -> int:
    """Put large records until one is refused; how many were taken."""
    taken = 0
    while True:
        try:
            placed = spool.put(record(f"{prefix}{taken}", query=LARGE), denial=denial)
        except SpoolFull:
            return taken
        await placed.durable
        taken += 1
        # A spare is made beside: it is not the speed that is tested.
        await until_async(
            "a spare segment is there, or the spool is full",
            lambda: spool.state is not State.OPEN or spares(root),
        )


async def test_allows_leave_room_for_denials_and_then_nothing_is_taken(tmp_path: Path) -> None:
    async with running_spool(tmp_path, max_bytes=SEGMENTS * MIB) as spool:
        allows = await fill(spool, tmp_path, denial=False, prefix="allow-")
        assert state(spool) == "denials_only"
        denials = await fill(spool, tmp_path, denial=True, prefix="deny-")
        assert state(spool) == "full"
        # All of the last segment but what one ALLOW may have begun.
        assert denials * 50_000 > SEGMENT * 0.8
        assert spool.bytes_held <= SEGMENTS * MIB
        with pytest.raises(SpoolFull):
            spool.put(record("small"), denial=False)
        cores = await shipped(spool)
    names = [f"allow-{n}" for n in range(allows)] + [f"deny-{n}" for n in range(denials)]
    assert eids(cores) == names
    assert not gaps(cores)


async def test_the_directory_never_grows_past_its_limit(tmp_path: Path) -> None:
    async with running_spool(tmp_path, max_bytes=SEGMENTS * MIB) as spool:
        await fill(spool, tmp_path, denial=False, prefix="allow-")
        await fill(spool, tmp_path, denial=True, prefix="deny-")
        files = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
        assert sum(files) <= SEGMENTS * MIB + 1000


async def test_room_returns_when_segments_are_acknowledged(tmp_path: Path) -> None:
    async with running_spool(tmp_path, max_bytes=SEGMENTS * MIB) as spool:
        await fill(spool, tmp_path, denial=False, prefix="allow-")
        await fill(spool, tmp_path, denial=True, prefix="deny-")
        await shipped(spool)
        await until_async("the spool is open", lambda: spool.state is State.OPEN)
        await keep(spool, "later")
        assert eids(await shipped(spool)) == ["later"]


async def test_a_full_disk_is_known_before_the_last_room_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        await keep(spool, "first")
        disk.breaks("create_zeroed", code=errno.ENOSPC)
        allows = await fill(spool, tmp_path, denial=False, prefix="allow-")
        assert state(spool) == "denials_only"
        assert spool.disk_fault == "ENOSPC (no space left on device)"
        denials = await fill(spool, tmp_path, denial=True, prefix="deny-")
        assert denials * 50_000 > SEGMENT * 0.8
        assert state(spool) == "full"
        fault = f"a segment can't be made: {spool.disk_fault} at `{tmp_path}`"
        assert caplog.messages == [f"the spool gets no more room: {fault}"]
        disk.heals()
        await until_async("the spool is open", lambda: spool.state is State.OPEN)
        await keep(spool, "later")
        cores = await shipped(spool)
    assert len(eids(cores)) == allows + denials + 2
    assert not gaps(cores)


async def test_allows_are_accepted_while_a_spare_is_made_but_not_the_last_eighth(
    tmp_path: Path,
) -> None:
    go = threading.Event()

    class Slow(FaultyDisk):
        def create_zeroed(self, path: Path, size: int) -> None:
            if self.broken:
                go.wait(30)
            super(FaultyDisk, self).create_zeroed(path, size)

    disk = Slow()
    async with running_spool(tmp_path, disk) as spool:
        await until_async("the spare segments are there", lambda: len(spares(tmp_path)) == 2)
        disk.breaks("slow")
        taken = 0
        with contextlib.suppress(SpoolFull):
            while True:
                await spool.put(record(taken, query=LARGE), denial=False).durable
                taken += 1
        last = len(list(frames(segments(tmp_path)[-1].read_bytes())))
        assert len(segments(tmp_path)) == 3
        assert SEGMENT * 0.8 < last * 50_500 < SEGMENT * 7 / 8
        await spool.put(record("deny", query=LARGE), denial=True).durable
        go.set()
        await until_async("the spool is open", lambda: spool.state is State.OPEN)
        await keep(spool, "later")
        assert eids(await shipped(spool)) == [*map(str, range(taken)), "deny", "later"]


@pytest.mark.deep(
    stands_in="test_a_shipped_segment_that_outgrew_a_lowered_limit_is_replaced_at_the_start"
)
@pytest.mark.parametrize("fault", [None, "create_zeroed", "sync"])
async def test_a_segment_that_outgrew_a_lowered_limit_is_replaced_once_it_is_shipped(
    tmp_path: Path, fault: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    disk, limit, ahead = FaultyDisk(), SEGMENTS * MIB, 0.0
    clock = replace(CLOCK, monotonic=lambda: CLOCK.monotonic() + ahead)
    async with running_spool(tmp_path, segment_bytes=8 * MIB) as spool:
        await keep(spool, "first")
    async with running_spool(tmp_path, disk, clock=clock, max_bytes=limit) as spool:
        # That there is no room for another was told at the start. That it is full is told too.
        [early] = caplog.messages
        assert early.startswith("the spool gets no more room: `max_bytes` is reached: records wait")
        ahead += PAUSE_SECONDS
        taken = 0
        with contextlib.suppress(SpoolFull):
            while True:
                await spool.put(record(taken, query=LARGE), denial=True).durable
                taken += 1
        assert (state(spool), spool.bytes_held) == ("full", 8 * MIB)
        told = f"{early}; only denials are recorded"
        await until_async("it is told", lambda: caplog.messages == [early, told])
        if fault is not None:
            disk.breaks(fault)
        cores = await shipped(spool)
        assert eids(cores) == ["first", *map(str, range(taken))]
        if fault is not None:
            before = len(disk.calls)
            await until_async("the disk is asked", lambda: fault in disk.calls[before:])
            disk.heals()
        await until_async("the spool is open", lambda: spool.state is State.OPEN)
        await until_async("the space is freed", lambda: spool.bytes_held == limit)
        # Once more, in segments of the new size.
        again = await fill(spool, tmp_path, denial=False, prefix="again-")
        assert spool.bytes_held == limit
        cores += await shipped(spool)
        assert eids(cores)[1 + taken :] == [f"again-{n}" for n in range(again)]
    assert [each["lost"] for each in gaps(check_chain(cores))] in ([], [0])


async def test_a_shipped_segment_that_outgrew_a_lowered_limit_is_replaced_at_the_start(
    tmp_path: Path,
) -> None:
    async with running_spool(tmp_path, segment_bytes=4 * MIB) as spool:
        await keep(spool, "first")
        cores = await shipped(spool)
    async with running_spool(tmp_path, max_bytes=SEGMENTS * MIB) as spool:
        assert (state(spool), spool.bytes_held) == ("open", SEGMENTS * MIB)
        await keep(spool, "next")
        cores += await shipped(spool)
    assert [core["src"]["n"] for core in check_chain(cores)] == [0, 1]
    assert len({core["src"]["inst"] for core in cores}) == 1


async def test_the_room_reserved_for_denials_survives_a_restart(tmp_path: Path) -> None:
    async with running_spool(tmp_path, max_bytes=SEGMENTS * MIB) as spool:
        allows = await fill(spool, tmp_path, denial=False, prefix="allow-")
    async with running_spool(tmp_path, max_bytes=SEGMENTS * MIB) as spool:
        await until_async("only denials have room", lambda: spool.state is State.DENIALS_ONLY)
        with pytest.raises(SpoolFull):
            spool.put(record("allow"), denial=False)
        denials = await fill(spool, tmp_path, denial=True, prefix="deny-")
        assert denials * 50_000 > SEGMENT * 0.8
        cores = await shipped(spool)
    assert len(eids(cores)) == allows + denials


async def test_a_full_spool_still_ends_an_instance_that_is_refused(tmp_path: Path) -> None:
    async with running_spool(tmp_path, max_bytes=SEGMENTS * MIB) as spool:
        await fill(spool, tmp_path, denial=False, prefix="allow-")
        await fill(spool, tmp_path, denial=True, prefix="deny-")
        held = spool.depth
        await spool.set_aside(spool.instance, "it conflicts")
        # There is no room for another instance: nothing is taken, and the spool says so.
        assert state(spool) == "unwritable"
        assert spool.depth == 0
        assert spool.lost == held
        assert not list(tmp_path.glob("conflict-*"))
        await asyncio.sleep(0.05)
    # More room by a larger limit.
    async with running_spool(tmp_path) as spool:
        await keep(spool, "later")
        cores = await shipped(spool)
        assert list(tmp_path.glob("conflict-*"))
    assert eids(check_chain(cores)) == ["later"]
    assert gaps(cores)[0]["lost"] == held


async def test_instances_that_were_set_aside_count_against_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_spool(tmp_path, max_bytes=6 * MIB) as spool:
        for n in range(60):
            await keep_large(spool, record(n, query=LARGE))
        await spool.set_aside(spool.instance, "it conflicts")
        await until_async("the conflict is kept", lambda: list(tmp_path.glob("conflict-*")))
        held = spool.bytes_held
        assert held > 4 * MIB
    async with running_spool(tmp_path, max_bytes=6 * MIB) as spool:
        await until_async("the space is freed", lambda: spool.bytes_held == held)
        await fill(spool, tmp_path, denial=False, prefix="allow-")
        [line] = [each for each in caplog.messages if "`max_bytes` is reached: " in each]
        assert "records wait to be shipped" in line
        assert "directories that were set aside (`conflict-…`" in line
        # The control API is not to blame: nothing waits for it any more.
        await shipped(spool)
        assert spool.occupied_by.startswith("directories that were set aside")
