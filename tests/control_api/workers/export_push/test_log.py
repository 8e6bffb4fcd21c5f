"""What the log does under a push: retention that goes on, and an entry that can't be read."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path

import pytest

from control_api.maintenance.purge_command import purge
from policies.ground.clock import Clock
from policies.ground.random_buffer import RandomBuffer
from tests.control_api.running_api import ControlApi
from tests.control_api.store.world import sql
from tests.control_api.workers.export_push.receiver import Receiver, decide, lag, metric
from tests.support.waiting import until

DAY = 86_400
LOST = "sluice_export_lost_entries_total"


def purged(api: ControlApi) -> None:
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    assert asyncio.run(purge(api.settings, clock, RandomBuffer(os.urandom), None, lambda _: None))


@pytest.fixture
def old(tmp_path: Path) -> ControlApi:
    """A control API of a while ago, whose log keeps a day."""
    api = ControlApi(tmp_path)
    api.time.ahead = -3 * DAY
    return api


@pytest.mark.deep(stands_in="test_an_entry_that_was_damaged_holds_up_none_behind_it")
def test_what_retention_removed_is_told_and_the_rest_is_pushed(
    old: ControlApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver(tmp_path / "receiver", "otlp")
    old.environ["SLUICE_EXPORT_URLS"] = receiver.url
    old.start()
    try:
        old.admin("PUT", "/v1/settings/retention", {"retention_days": 1})
        decide(old, 30)
        until("an export has failed", lambda: metric(old, "sluice_export_failures_total") >= 1)
        old.stop()
        old.time.ahead = 0
        old.start()
        made = decide(old, 5)
        old.stop()
        purged(old)
        old.start()
        receiver.start()
        until("everything has arrived", partial(receiver.has_all, made))
        until("everything is exported", lambda: lag(old) == 0)
        assert metric(old, LOST) >= 30
    finally:
        old.stop()
        receiver.kill()
    assert receiver.ids() == made
    assert "retention removed" in caplog.text


@pytest.mark.deep(stands_in="test_an_entry_that_was_damaged_holds_up_none_behind_it")
def test_a_new_target_has_lost_nothing_that_was_removed_before(
    old: ControlApi, tmp_path: Path
) -> None:
    receiver = Receiver(tmp_path / "receiver", "otlp").start()
    old.start()
    old.admin("PUT", "/v1/settings/retention", {"retention_days": 1})
    decide(old, 30)
    old.stop()
    old.time.ahead = 0
    old.start()
    made = decide(old, 5)
    old.stop()
    purged(old)
    old.environ["SLUICE_EXPORT_URLS"] = receiver.url
    old.start()
    try:
        until("everything has arrived", partial(receiver.has_all, made))
        assert metric(old, LOST) == 0
    finally:
        old.stop()
        receiver.kill()
    assert receiver.ids() == made


def test_an_entry_that_was_damaged_holds_up_none_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver(tmp_path / "receiver", "otlp").start()
    api = ControlApi(tmp_path).start()
    made = decide(api, 9)
    api.stop()
    damage = f"UPDATE log_entries SET entry = X'7B' WHERE eid = '{made[4]}'"
    asyncio.run(sql(f"sqlite+aiosqlite:///{tmp_path}/data/sluice.db", damage))
    api.environ["SLUICE_EXPORT_URLS"] = receiver.url
    api.start()
    try:
        until("everything is exported", lambda: lag(api) == 0)
    finally:
        api.stop()
        receiver.kill()
    assert receiver.ids() == made[:4] + made[5:]
    assert "can't be read, and is not exported" in caplog.text
