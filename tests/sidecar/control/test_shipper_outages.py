"""The shipper while the control API, or the disk, fails."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from aiohttp import web

import sidecar.control.shipper
from tests.sidecar.control.running_shipper import check_log, shipping
from tests.sidecar.spool.fake_log import FakeLog, refusal, serving
from tests.sidecar.spool.running_spool import FaultyDisk, keep, running_spool
from tests.support.waiting import until_async


async def test_an_answer_lost_after_the_append_leaves_each_record_once(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.lost = 3
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(20))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert shipper.failures == 3
        assert len(log.bodies) == 4
        check_log(log, *range(20))


async def test_records_added_while_answers_are_lost_arrive_once(tmp_path: Path) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        async with shipping(spool, log):
            for n in range(200):
                log.lost = n % 2
                await keep(spool, n)
            log.lost = 0
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, *range(200))


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
async def test_a_passing_failure_is_retried(tmp_path: Path, status: int) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.faults = [refusal(status)] * 3
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert shipper.failures == 3
            assert shipper.problem is None
        check_log(log, *range(5))


async def test_an_unreachable_control_api_loses_no_record(tmp_path: Path) -> None:
    log = FakeLog()
    async with running_spool(tmp_path) as spool:
        async with serving(log):
            address = log.address
        async with shipping(spool, log, address=address) as shipper:
            await keep(spool, *range(50))
            await until_async("sending has failed", lambda: shipper.failures >= 2)
            assert shipper.problem is not None
            assert spool.depth == 50
            assert spool.oldest_age() > 0.05
            async with serving(log, int(address.rsplit(":", 1)[1])):
                await until_async("everything is shipped", lambda: spool.depth == 0)
            assert spool.oldest_age() == 0
        check_log(log, *range(50))


async def test_a_lasting_outage_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.always = refusal(503)
        with caplog.at_level(logging.INFO, "sidecar.control.shipper"):
            async with shipping(spool, log) as shipper:
                await keep(spool, 0)
                await until_async("sending has failed", lambda: shipper.failures >= 4)
                log.always = None
                await until_async("everything is shipped", lambda: spool.depth == 0)
        assert [entry.levelname for entry in caplog.records] == ["ERROR", "WARNING"]


@pytest.mark.parametrize("status", [401, 403, 404, 413, 302])
async def test_a_refused_sidecar_keeps_its_records_and_tries_seldom(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar.control.shipper, "REFUSED_PAUSE", 2.0)
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.always = refusal(status)
        async with shipping(spool, log) as shipper:
            await keep(spool, *range(5))
            await until_async("sending has failed", lambda: shipper.failures >= 1)
            await asyncio.sleep(0.2)
            if status != 302:
                assert shipper.failures == 1
            assert spool.depth == 5
            assert str(status) in (shipper.problem or "")
            log.always = None
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, *range(5))


async def test_an_unreadable_spool_is_tried_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running_spool(tmp_path, disk) as spool, serving(FakeLog()) as log:
        await keep(spool, *range(5))
        disk.breaks("read")
        async with shipping(spool, log) as shipper:
            await until_async("sending has failed", lambda: shipper.failures >= 2)
            disk.heals()
            await until_async("everything is shipped", lambda: spool.depth == 0)
        check_log(log, *range(5))


async def test_retry_after_is_honoured(
    tmp_path: Path,
) -> None:
    async with running_spool(tmp_path) as spool, serving(FakeLog()) as log:
        log.faults = [lambda: web.json_response({}, status=503, headers={"Retry-After": "1"})]
        await keep(spool, 0)
        started = asyncio.get_running_loop().time()
        async with shipping(spool, log) as shipper:
            await until_async("everything is shipped", lambda: spool.depth == 0)
            assert shipper.failures == 1
        assert 1.0 < asyncio.get_running_loop().time() - started < 5.0
        check_log(log, 0)
