"""Records get from the spool into the log exactly once, in order."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from sidecar.control.client import ControlClient
from sidecar.control.shipper import LINGER_SECONDS
from tests.sidecar.control.running_shipper import KEY, check_log, make_shipper, shipping
from tests.sidecar.spool.fake_log import MAX_BODY, FakeLog, refusal, serving
from tests.sidecar.spool.running_spool import (
    CLOCK,
    FaultyDisk,
    instances,
    keep,
    record,
    running_spool,
)
from tests.support import waiting
from tests.support.waiting import until_async


async def test_records_ship_once_in_order_and_leave_the_disk(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log) as shipper:
            for n in range(1500):
                spool.put(record(n), denial=False)
                if n % 100 == 0:
                    await asyncio.sleep(0.01)
            await until_async("the records are in the log", lambda: len(log.events()) == 1500)
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert shipper.shipped == 1500
            assert shipper.problem is None
        check_log(log, *range(1500))
        assert set(log.keys) == {KEY}


async def test_a_body_is_at_most_a_mebibyte(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        for n in range(60):
            await spool.put(record(n, query="ü" * 32_000), denial=False).durable
        async with shipping(spool, log):
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, *range(60))
        assert MAX_BODY * 0.9 < max(log.bodies) <= MAX_BODY


async def test_records_that_leave_the_host_are_compressed(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        for n in range(300):
            spool.put(record(n, query="what is the covenant?"), denial=False)
        async with shipping(spool, log, compress=True):
            await until_async("the records are in the log", lambda: len(log.events()) == 300)
        check_log(log, *range(300))
        assert set(log.encodings) == {"gzip"}
        assert sum(log.lengths) < 0.7 * sum(log.bodies)


async def test_records_linger_so_that_a_batch_forms(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        began = time.monotonic()
        async with shipping(spool, log):
            for n in range(30):
                await keep(spool, n)
                await asyncio.sleep(0.001)
            await until_async("everything is shipped", lambda: spool.depth == 0)
        # A busy machine takes longer for the records, which then make more batches.
        assert len(log.bodies) <= 2 + (time.monotonic() - began) / LINGER_SECONDS
        check_log(log, *range(30))


async def test_after_a_restart_without_its_note_resent_records_are_skipped(tmp_path: Path) -> None:
    async with serving(FakeLog()) as log:
        async with running_spool(tmp_path) as spool, shipping(spool, log):
            await keep(spool, *range(900))
            await until_async("everything is shipped", lambda: spool.depth == 0)
        (instances(tmp_path)[0] / "acked").unlink()
        async with running_spool(tmp_path) as spool:
            assert spool.depth == 900
            await keep(spool, "later")
            sent = len(log.bodies)
            async with shipping(spool, log) as shipper:
                await until_async("everything is shipped", lambda: spool.depth == 0)
                assert shipper.conflicts == 0
        check_log(log, *range(900), "later")
        # The first receipt already said how far the log is: not everything was sent again.
        assert len(log.bodies) - sent == 2


async def test_a_failed_instance_ships_before_the_next(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool, serving(FakeLog()) as log:
        await keep(spool, 0, 1)
        disk.breaks("sync")
        spool.put(record("lost"), denial=False)
        await until_async("the spool refuses records", lambda: spool.refusal is not None)
        disk.heals()
        await until_async("the spool takes records again", lambda: spool.refusal is None)
        await keep(spool, "later")
        async with shipping(spool, log):
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, 0, 1, "later")
        assert [core["kind"] for core in log.entries][2] == "gap"


@pytest.mark.deep(stands_in="test_draining_waits_for_records_on_their_way_to_the_disk")
async def test_draining_ships_every_record(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        await keep(spool, *range(2000))
        log.faults = [refusal(503)]
        async with ControlClient(log.address, KEY) as control:
            shipper = make_shipper(spool, control, log)
            assert await shipper.drain(CLOCK.monotonic() + 10)
        check_log(log, *range(2000))


async def test_draining_waits_for_records_on_their_way_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.control.shipper.BATCH_RECORDS", 2)
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool, serving(FakeLog()) as log:
        await keep(spool, *range(5))
        log.faults = [refusal(503)]
        disk.hold()
        spool.put(record("last"), denial=False)
        asyncio.get_running_loop().call_later(0.1, disk.release)
        async with ControlClient(log.address, KEY) as control:
            shipper = make_shipper(spool, control, log)
            assert await shipper.drain(CLOCK.monotonic() + 10)
        check_log(log, *range(5), "last")


async def test_draining_ends_at_its_deadline_and_loses_nothing(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        await keep(spool, *range(5))
        log.always = refusal(503)
        async with ControlClient(log.address, KEY) as control:
            shipper = make_shipper(spool, control, log)
            async with asyncio.timeout(waiting.PATIENCE):
                assert not await shipper.drain(CLOCK.monotonic() + 0.3)
            assert spool.depth == 5


async def test_no_key_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.always = refusal(403)
        async with shipping(spool, log) as shipper:
            await keep(spool, 0)
            await until_async("sending has failed", lambda: shipper.failures >= 1)
            assert KEY not in (shipper.problem or "")
    assert KEY not in caplog.text
