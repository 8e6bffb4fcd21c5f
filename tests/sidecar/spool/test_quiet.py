"""A quiet spool keeps nothing of what was receipted, and loses, repeats and skips nothing."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64
from policies.trail.spool_chain import read_payload
from sidecar.spool import Spool
from tests.sidecar.spool.quiet_process import QUIET, RECORDS, SEED, seeded
from tests.sidecar.spool.running_spool import (
    MIB,
    FaultyDisk,
    check_chain,
    eids,
    gaps,
    instances,
    keep,
    keep_large,
    record,
    running_spool,
    segments,
    shipped,
    spares,
)
from tests.support.stack import ROOT
from tests.support.waiting import until_async

LARGE = "q" * 50_000 + SEED


async def written(spool: Spool) -> None:
    await until_async("everything is on disk", lambda: not spool.bytes_waiting)


async def holds(spool: Spool, count: int) -> None:
    """Return once the spool has this number of segments, with spares."""
    await until_async("the space is freed", lambda: spool.bytes_held == count * MIB)


async def quiet(root: Path) -> None:
    await until_async("the spare segments are seeded", lambda: not seeded(root))


async def test_a_quiet_spool_keeps_no_byte_of_receipted_records(tmp_path: Path) -> None:
    cores: list[dict[str, Any]] = []
    async with running_spool(tmp_path, quiet_seconds=QUIET) as spool:
        for times in (1, 60, 2):  # the second does not fit in one segment
            for n in range(times):
                await keep_large(spool, record(f"{times}.{n}", query=LARGE))
            assert seeded(tmp_path)
            cores += await shipped(spool)
            await quiet(tmp_path)
            await until_async("the spare segments are there", lambda: len(spares(tmp_path)) == 2)
            assert len(segments(tmp_path)) == 1
            assert spool.bytes_held == 3 * MIB
            assert all(path.read_bytes() == bytes(MIB) for path in spares(tmp_path))
    async with running_spool(tmp_path) as spool:
        await keep(spool, "after a restart")
        cores += await shipped(spool)
    assert [core["src"]["n"] for core in check_chain(cores)] == list(range(64))
    assert len({core["src"]["inst"] for core in cores}) == 1


async def test_records_without_a_receipt_ship_whatever_is_dropped_around_them(
    tmp_path: Path,
) -> None:
    """It drops whenever it can, while records come, ship and are asked for again."""
    chance = random.Random(7)
    cores: dict[int, dict[str, Any]] = {}
    count = 0
    for _ in range(3):
        async with running_spool(tmp_path, quiet_seconds=0.0005) as spool:
            for _ in range(60):
                for _ in range(chance.randrange(3)):
                    spool.put(record(count), denial=False)
                    count += 1
                # The control API may have lost the last of them.
                if chance.random() < 0.1:
                    await spool.rewind(spool.instance, max(0, count - 3))
                await asyncio.sleep(chance.choice((0, 0, 0.002)))
                if chance.random() < 0.7:
                    await ship(spool, cores, chance.randrange(1, 4))
            await written(spool)
    async with running_spool(tmp_path) as spool:
        while await ship(spool, cores, MIB):
            pass
    assert count > 100
    assert sorted(cores) == list(range(count))
    assert not gaps(check_chain([cores[n] for n in range(count)]))


async def ship(spool: Spool, cores: dict[int, dict[str, Any]], most: int) -> bool:
    """As the control API takes records: a number that comes again is the same record."""
    batch = await spool.batch(MIB, most)
    if batch is None:
        return False
    for payload in batch.payloads:
        core = read_payload(orjson.loads(payload)).core
        assert cores.setdefault(core["src"]["n"], core) == core
    await spool.acknowledge(batch.instance, batch.last_n)
    return True


async def test_a_spool_that_dropped_records_cannot_be_rewound_but_is_not_damaged(
    tmp_path: Path,
) -> None:
    async with running_spool(tmp_path, quiet_seconds=QUIET) as spool:
        await keep(spool, *range(5), SEED)
        await shipped(spool)
        await quiet(tmp_path)
        assert await spool.hash_of(spool.instance, 4) is None
        assert not await spool.rewind(spool.instance, 3)
        await keep(spool, "next")
        assert eids(await shipped(spool)) == ["next"]
        assert spool.gaps == 0


@pytest.mark.parametrize("operation", ["rewrite", "rename", "sync_directory", "sync"])
async def test_a_disk_that_fails_during_a_drop_loses_no_record(
    tmp_path: Path, operation: str
) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk, quiet_seconds=QUIET) as spool:
        await keep(spool, *range(5), SEED)
        before = len(disk.calls)
        disk.breaks(operation)
        cores = await shipped(spool)
        await until_async("the disk is asked", lambda: operation in disk.calls[before:])
        disk.heals()
        await quiet(tmp_path)
        await until_async("the spool is open", lambda: spool.state == "open")
        await keep(spool, "next")
        cores += await shipped(spool)
    assert eids(check_chain(cores)) == [*"01234", SEED, "next"]
    assert [each["lost"] for each in gaps(cores)] in ([], [0])


@pytest.mark.deep(
    stands_in="tests/sidecar/spool/storage/test_segment_pool.py::test_at_any_moment_of_its_reuse_a_segment_is_whole_or_gone"
)
async def test_a_spool_killed_at_any_step_of_a_drop_continues_where_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sidecar.spool.quiet_process", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=120, check=True)
    moments = int(done.stdout)
    assert moments > 12
    emptied = 0
    for moment in range(moments + 1):
        root = tmp_path / str(moment) / "spool"
        emptied += not seeded(root)
        # After a power cut, the note of how far the control API has it may be missing.
        if moment % 2:
            (instances(root)[0] / "acked").unlink(missing_ok=True)
        async with running_spool(root, quiet_seconds=QUIET) as spool:
            placed = spool.put(record("next"), denial=False)
            await placed.durable
            *again, last = await shipped(spool)
            assert (last["src"]["n"], last["eid"]) == (RECORDS, "next")
            assert last["src"]["prev"] == b64((root.parent / "hash").read_bytes())
            assert eids(again) == [str(n) for n in range(RECORDS)][RECORDS - len(again) :]
            assert (len(instances(root)), spool.gaps) == (1, 0)
            await quiet(root)
            await holds(spool, 3)
    assert 0 < emptied < moments
