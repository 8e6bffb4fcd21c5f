"""What ships, in which order, and when it is forgotten."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import orjson
import pytest

from sidecar.spool.errors import SpoolFull
from sidecar.spool.reading.backlog import OldestAge
from sidecar.spool.spool import Spool
from tests.sidecar.spool.running_spool import (
    MIB,
    SEGMENT,
    FaultyDisk,
    eids,
    gaps,
    instances,
    keep,
    record,
    running_spool,
    segments,
    shipped,
    written,
)
from tests.support.waiting import POLL, turns, until_async

LARGE = "q" * 50_000


@pytest.fixture
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.spool.spool.RETAINED_FRACTION", 1 << 40)


async def test_a_batch_contains_at_most_what_was_requested(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        await keep(spool, *range(100))
        everything = await spool.batch(MIB)
        assert everything is not None
        assert (everything.first_n, everything.last_n) == (0, 99)
        few = await spool.batch(MIB, 7)
        assert few is not None
        assert few.last_n == 6
        small = await spool.batch(sum(map(len, everything.payloads[:3])) + 3)
        assert small is not None
        assert len(small.payloads) == 3
        one = await spool.batch(1)
        assert one is not None
        assert len(one.payloads) == 1
        assert one.payloads == everything.payloads[:1]


async def test_records_that_are_not_acknowledged_are_read_again(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        await keep(spool, *range(10))
        first = await spool.batch(MIB, 4)
        again = await spool.batch(MIB, 4)
        assert first == again
        assert first is not None
        await spool.acknowledge(first.instance, 1)
        assert spool.depth == 8
        batch = await spool.batch(MIB)
        assert batch is not None
        assert batch.first_n == 2
        await spool.acknowledge(first.instance, 0)
        assert spool.depth == 8


async def test_an_acknowledgement_may_be_ahead_of_what_was_read(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        for n in range(60):
            await spool.put(record(n, query=LARGE), denial=False).durable
        batch = await spool.batch(1)
        assert batch is not None
        await spool.acknowledge(batch.instance, 45)
        assert spool.depth == 14
        assert eids(await shipped(spool)) == [str(n) for n in range(46, 60)]


async def test_an_acknowledgement_beyond_the_end_or_of_another_instance_changes_nothing_else(
    tmp_path: Path,
) -> None:
    async with running_spool(tmp_path) as spool:
        await keep(spool, 0, 1)
        await spool.acknowledge("f" * 32, 1)
        assert spool.depth == 2
        await spool.acknowledge(spool.instance, 1000)
        assert spool.depth == 0
        await keep(spool, 2)
        assert eids(await shipped(spool)) == ["2"]


@pytest.mark.usefixtures("nothing_is_kept")
async def test_a_segment_is_deleted_only_when_all_of_it_is_acknowledged(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        for n in range(60):
            await spool.put(record(n, query=LARGE), denial=False).durable
        firsts = [int(path.stem) for path in segments(tmp_path)]
        assert len(firsts) == 3
        held = spool.bytes_held
        await spool.acknowledge(spool.instance, firsts[1] - 2)
        assert len(segments(tmp_path)) == 3
        await spool.acknowledge(spool.instance, firsts[1] - 1)
        assert [int(path.stem) for path in segments(tmp_path)] == firsts[1:]
        assert spool.bytes_held == held - MIB
        # The one that is written stays, whatever is acknowledged: it tells the next number.
        await spool.acknowledge(spool.instance, 59)
        assert [int(path.stem) for path in segments(tmp_path)] == firsts[2:]


@pytest.mark.usefixtures("nothing_is_kept")
async def test_the_last_segment_stays_until_the_next_has_a_record(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        count = 0
        # Until at most two more fit.
        while not count or SEGMENT - written(segments(tmp_path)[0]) > 2 * 52_000:
            await spool.put(record(count, query=LARGE), denial=False).durable
            count += 1
        disk.hold()
        # The last of these begins a segment, whose sync does not return.
        last = [spool.put(record(count + more, query=LARGE), denial=False) for more in (0, 1, 2)]
        await asyncio.to_thread(disk.waiting.wait, 5)
        await spool.acknowledge(spool.instance, count - 1)
        assert int(segments(tmp_path)[0].stem) == 0
        disk.release()
        await last[2].durable
        await shipped(spool)
        assert int(segments(tmp_path)[0].stem) > 0


async def test_old_instances_ship_before_the_current_one(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        for life in range(3):
            await keep(spool, f"{life}a", f"{life}b")
            disk.breaks("sync")
            spool.put(record("lost"), denial=False)
            await until_async("the spool refuses records", lambda: spool.refusal is not None)
            disk.heals()
            await until_async("the spool takes records again", lambda: spool.refusal is None)
        await keep(spool, "last")
        cores = await shipped(spool)
        assert len(instances(tmp_path)) == 1
    assert eids(cores) == ["0a", "0b", "1a", "1b", "2a", "2b", "last"]
    assert len(gaps(cores)) == 3


async def test_an_instance_set_aside_is_kept_declared_and_ships_no_more(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        await keep(spool, *range(10))
        await spool.acknowledge(spool.instance, 3)
        former = spool.instance
        name = instances(tmp_path)[0].name
        await spool.set_aside(former, "409: another record 4")
        # The new one takes over in the same step.
        assert spool.instance != former
        assert spool.refusal is None
        await keep(spool, "later")
        cores = await shipped(spool)
        await until_async("the conflict is kept", (tmp_path / f"conflict-{name}").exists)
    assert eids(cores) == ["later"]
    (gap,) = gaps(cores)
    assert (gap["instance"], gap["first"], gap["lost"]) == (former, 4, 6)
    assert "409" in gap["reason"]
    assert list((tmp_path / f"conflict-{name}").glob("*.seg"))
    async with running_spool(tmp_path) as spool:
        assert spool.depth == 0
        assert not (await shipped(spool))
        assert (tmp_path / f"conflict-{name}").exists()


async def test_records_put_while_an_instance_is_set_aside_are_counted_or_kept(
    tmp_path: Path,
) -> None:
    async with running_spool(tmp_path) as spool:
        placed = []
        for n in range(200):
            placed.append(spool.put(record(n), denial=False))
            if n == 100:
                await spool.set_aside(spool.instance, "409")
        for each in placed:
            await each.durable
        await until_async("the gap is declared", lambda: spool.gaps == 1)
        cores = await shipped(spool)
    assert gaps(cores)[0]["lost"] + len(eids(cores)) == 200


async def test_the_hash_of_a_record_on_disk_is_found_whether_or_not_acknowledged(
    tmp_path: Path,
) -> None:
    async with running_spool(tmp_path) as spool:
        placed = [spool.put(record(n), denial=False) for n in range(5)]
        await placed[-1].durable
        assert await spool.hash_of(spool.instance, 3) == placed[3].core_hash
        assert await spool.hash_of(spool.instance, 5) is None
        assert await spool.hash_of("f" * 32, 0) is None
        await spool.acknowledge(spool.instance, 3)
        assert await spool.hash_of(spool.instance, 3) == placed[3].core_hash
        assert await spool.hash_of(spool.instance, 4) == placed[4].core_hash


async def test_acknowledged_records_are_retained_and_can_be_sent_again(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        for n in range(60):
            await spool.put(record(n, query=LARGE), denial=False).durable
        await spool.acknowledge(spool.instance, 55)
        assert len(segments(tmp_path)) == 3
        assert await spool.rewind(spool.instance, 7)
        assert spool.depth == 53
        assert not await spool.rewind(spool.instance, 7)
        assert not await spool.rewind("f" * 32, 0)
        assert eids(await shipped(spool)) == [str(n) for n in range(7, 60)]
    async with running_spool(tmp_path) as spool:
        assert spool.depth == 0
        assert await spool.rewind(spool.instance, 0)
        assert eids(await shipped(spool)) == [str(n) for n in range(60)]


async def _put_when_there_is_room(spool: Spool, number: int) -> None:
    """Until the next segment is made in the background, a full one refuses all but denials."""
    while True:
        try:
            await spool.put(record(number, query=LARGE), denial=False).durable
        except SpoolFull:
            await asyncio.sleep(POLL)
        else:
            return


@pytest.mark.deep(stands_in="test_a_retained_segment_is_replaced_by_new_records")
async def test_retained_segments_are_deleted_first_when_room_is_needed(tmp_path: Path) -> None:
    """Of 20 MiB an eighth may be retained: two segments of a mebibyte."""
    async with running_spool(tmp_path, max_bytes=20 * MIB) as spool:
        for n in range(100):
            await spool.put(record(n, query=LARGE), denial=False).durable
        await spool.acknowledge(spool.instance, 99)
        kept = len(segments(tmp_path)) - 1
        assert kept == 2
        assert not await spool.rewind(spool.instance, 0)
        for n in range(100, 460):
            await _put_when_there_is_room(spool, n)
        assert len(segments(tmp_path)) >= 18
        assert await spool.hash_of(spool.instance, 99) is not None


async def test_a_retained_segment_is_replaced_by_new_records(tmp_path: Path) -> None:
    """Of 8 MiB an eighth may be retained: one segment of a mebibyte."""
    async with running_spool(tmp_path, max_bytes=8 * MIB) as spool:
        for n in range(60):
            await spool.put(record(n, query=LARGE), denial=False).durable
        await spool.acknowledge(spool.instance, 59)
        assert len(segments(tmp_path)) - 1 == 1
        kept, number = segments(tmp_path)[0], 60
        # An eighth is left for denials, so seven others leave no room for it.
        while len({*segments(tmp_path)} - {kept}) < 7:
            await _put_when_there_is_room(spool, number)
            number += 1
        assert kept not in segments(tmp_path)
        assert await spool.hash_of(spool.instance, number - 1) is not None


async def test_retained_segments_are_deleted_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_spool(tmp_path) as spool:
        for n in range(60):
            await spool.put(record(n, query=LARGE), denial=False).durable
        await spool.acknowledge(spool.instance, 59)
        held = spool.bytes_held
        await spool.trim()
        assert spool.bytes_held == held
        monkeypatch.setattr("sidecar.spool.reading.retention.RETAIN_SECONDS", 0.0)
        await spool.trim()
        assert spool.bytes_held == held - 2 * MIB
        assert len(segments(tmp_path)) == 1


async def test_wait_returns_when_a_record_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool:
        waiting = asyncio.create_task(spool.wait_unshipped())
        disk.hold()
        spool.put(record(), denial=False)
        await turns()
        assert not waiting.done()
        disk.release()
        await asyncio.wait_for(waiting, 20)
        await shipped(spool)
        waiting = asyncio.create_task(spool.wait_unshipped())
        await turns()
        assert not waiting.done()
        waiting.cancel()


async def test_a_payload_has_core_and_openings_in_the_form_of_the_wire(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool:
        await spool.put(record("one", query="what is owed?"), denial=False).durable
        batch = await spool.batch(MIB)
        assert batch is not None
        payload = orjson.loads(batch.payloads[0])
    assert payload.keys() == {"core", "open"}
    assert payload["open"]["query"][1] == "what is owed?"


def test_the_age_is_that_of_the_oldest_and_needs_little_memory() -> None:
    now = 0.0
    age = OldestAge(lambda: now)
    tracemalloc.start()
    assert age.seconds() == 0
    depth = 0
    for _ in range(20_000):
        now += 1
        depth += 10
        age.grow_to(depth)
    assert age.seconds() == 19_999
    # A time for each item would take a megabyte.
    assert tracemalloc.get_traced_memory()[0] < 200_000
    tracemalloc.stop()
    age.shrink_by(100_000)
    # Half of them left: the oldest came at 10,000; an age may err upward by a mark.
    assert 9_999 <= age.seconds() <= 10_500
    age.shrink_by(100_000)
    assert age.seconds() == 0
    now += 100
    age.grow_to(1)
    now += 5
    assert age.seconds() == 5
