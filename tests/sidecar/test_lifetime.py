"""A sidecar's lifetime in the process of the tests."""

import asyncio
import os
from pathlib import Path

import pytest

from sidecar.serve import serve
from tests.sidecar.spool.running_spool import keep, running_spool, shipped
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import FakeClock, settings


async def test_records_that_cannot_ship_at_a_stop_stay_in_the_spool_without_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.serve.SHIP_SECONDS", 0.1)
    async with running_spool(tmp_path / "spool") as spool:
        await keep(spool, *range(20))
    async with fake_control_api() as control:
        configured = settings(tmp_path, control)
    # It is away now.
    stop = asyncio.Event()
    await serve(configured, FakeClock().clock, os.urandom, stop, stop.set)
    async with running_spool(tmp_path / "spool") as spool:
        assert [core["eid"] for core in await shipped(spool)] == [str(n) for n in range(20)]
