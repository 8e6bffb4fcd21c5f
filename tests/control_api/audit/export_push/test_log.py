"""What the log does under a push: retention that goes on, and an entry that can't be read."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from control_api.audit.export_push import position_queries, target_loop
from control_api.audit.export_push.sender import TargetAway
from control_api.audit.export_push.target_loop import TargetLoop, read_batch
from control_api.purge import purge
from control_api.security.export_targets import ExportTarget
from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from policies.ground.ids import RandomBuffer
from tests.control_api.audit.export_push.receiver import Receiver, decide, lag, metric, parts_on
from tests.support.control_api import ControlApi
from tests.support.open_store import OTHER, TENANT, decision, opened, sql
from tests.support.waiting import until, until_async

DAY = 86_400
LOST = "sluice_export_lost_entries_total"
PURGED = "INSERT INTO purges VALUES ('{}', 9, 6, '', '', '', 0, 6, 0, '', NULL, 0)"
"""The entries before 6."""


def purged(api: ControlApi) -> None:
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    assert asyncio.run(purge(api.settings, clock, RandomBuffer(os.urandom), None, lambda _: None))


@pytest.fixture
def old(tmp_path: Path) -> ControlApi:
    """A control API of a while ago, whose log keeps a day."""
    api = ControlApi(tmp_path)
    api.time.ahead = -3 * DAY
    return api


class Taking:
    """A target that takes everything."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def encode(self, event: Mapping[str, Any], _: str) -> bytes:
        return str(event["event_id"]).encode()

    async def send(self, encoded: list[bytes]) -> int:
        self.taken += [each.decode() for each in encoded]
        return 0

    async def settle(self) -> None:
        pass

    async def abandon(self) -> None:
        pass


async def test_entries_removed_before_their_turn_are_reported_and_the_rest_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target, registry = ExportTarget.parse("otlp+http://127.0.0.1:1"), CollectorRegistry()
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world:
        made = [(await world.log.append(TENANT, decision())).eid for _ in range(10)]
        await world.rows(PURGED.format(TENANT))
        reached = "INSERT INTO export_positions VALUES (:tenant, :target, 2, '', 0)"
        await world.rows(reached, tenant=TENANT, target=target.identity)
        app = parts_on(world, registry)
        app.stopping.set()  # so it is the last turn
        sender = Taking()
        await TargetLoop(app, target, 1, sender).run()
    assert sender.taken == made[6:]
    assert registry.get_sample_value(LOST, {"target": "1"}) == 4
    assert "retention removed 4 entries" in caplog.text


async def test_unacknowledged_decisions_are_sent_again_and_then_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(target_loop, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(target_loop, "FIRST_BATCH", 3)
    monkeypatch.setattr(target_loop, "BATCHES", 2)  # so that a turn leaves something
    target, registry = ExportTarget.parse("otlp+http://127.0.0.1:1"), CollectorRegistry()

    class AwayAtFirst(Taking):
        def __init__(self) -> None:
            super().__init__()
            self.failed = 0
            self.settled: list[str] = []

        async def settle(self) -> None:
            sent, self.taken = self.taken, []
            if self.failed < 2:
                self.failed += 1
                raise TargetAway("it broke off")
            self.settled += sent

    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world:
        made = [(await world.log.append(TENANT, decision())).eid for _ in range(10)]
        other = (await world.log.append(OTHER, decision())).eid
        app, sender = parts_on(world, registry), AwayAtFirst()
        async with asyncio.TaskGroup() as group:
            group.create_task(TargetLoop(app, target, 1, sender).run())
            await until_async("it is acknowledged", lambda: len(sender.settled) > 10)
            app.stopping.set()
        # In order, each tenant's, and nothing twice.
        assert [each for each in sender.settled if each != other] == made
        assert sender.settled.count(other) == 1
        last = Taking()
        await TargetLoop(app, target, 1, last).run()
        assert last.taken == []
    assert registry.get_sample_value("sluice_export_failures_total", {"target": "1"}) == 2
    counted = {"target": "1", "outcome": "acknowledged"}
    assert registry.get_sample_value("sluice_export_decisions_total", counted) == 11
    told = [each.getMessage() for each in caplog.records if each.name == "sluice.exports"]
    assert ["is away" in each for each in told] == [True, False]
    assert ["recovered: " in each for each in told] == [False, True]


async def test_one_replica_at_a_time_pushes_a_log(tmp_path: Path) -> None:
    target = ExportTarget.parse("otlp+http://127.0.0.1:1")
    replicas = "postgresql://127.0.0.1/sluice"

    class Slow(Taking):
        def __init__(self) -> None:
            super().__init__()
            self.go_on = asyncio.Event()

        async def settle(self) -> None:
            await self.go_on.wait()

    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world:
        made = [(await world.log.append(TENANT, decision())).eid for _ in range(10)]
        one, other = (parts_on(world, CollectorRegistry(), replicas) for _ in range(2))
        slow, idle = Slow(), Taking()
        async with asyncio.TaskGroup() as group:
            group.create_task(TargetLoop(one, target, 1, slow).run())
            await until_async("one pushes", lambda: slow.taken == made)
            other.stopping.set()
            await TargetLoop(other, target, 1, idle).run()
            slow.go_on.set()
            one.stopping.set()
        made.append((await world.log.append(TENANT, decision())).eid)
        await TargetLoop(other, target, 1, idle).run()
    assert (slow.taken, idle.taken) == (made[:-1], made[-1:])


async def test_a_push_skips_purged_entries_and_one_process_pushes_a_log(
    tmp_path: Path,
) -> None:
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world:
        made = [(await world.log.append(TENANT, decision())).eid for _ in range(10)]
        await world.rows(PURGED.format(TENANT))

        async def claimed(target: str, lease: str, after: int = 0) -> int | None:
            async def work(tx: Transaction) -> int | None:
                key, now = (tx.tenant_id, target, lease), tx.now + after
                return await position_queries.claim(tx.connection, *key, now, now + 10**6)

            return await world.store.write(TENANT, work)

        async def saved(lease: str, next_seq: int) -> bool:
            async def work(tx: Transaction) -> bool:
                key = (tx.tenant_id, "target", lease, tx.now + 10**6, next_seq)
                return await position_queries.save(tx.connection, *key)

            return await world.store.write(TENANT, work)

        # A new target begins with what is kept, and has lost nothing.
        assert await claimed("target", "a") == 6
        batch = await read_batch(world.store, TENANT, range(6, 10), 50, _id_of)
        assert ([each.decode() for each in batch.encoded], batch.lost) == (made[6:], 0)
        # An erased user's opening is gone, and so is the user.
        await world.rows("DELETE FROM openings WHERE seq = 7")
        users = await read_batch(world.store, TENANT, range(6, 9), 50, _user_of)
        assert [each != b"None" for each in users.encoded] == [True, False, True]
        assert batch.next_seq == 10
        # One that had got to entry 2 has lost four, which it is told.
        batch = await read_batch(world.store, TENANT, range(2, 10), 50, _id_of)
        assert ([each.decode() for each in batch.encoded], batch.lost) == (made[6:], 4)
        assert await claimed("target", "b") is None
        assert not await saved("b", 10)
        assert await claimed("target", "b", 2 * 10**6) == 6
        assert not await saved("a", 10)
        assert await saved("b", 10)
        assert await claimed("target", "b") == 10


def _user_of(event: dict[str, Any], _: str) -> bytes:
    return str(event.get("user_id")).encode()


def _id_of(event: dict[str, Any], _: str) -> bytes:
    return str(event["event_id"]).encode()


@pytest.mark.deep(
    stands_in="test_entries_removed_before_their_turn_are_reported_and_the_rest_is_sent"
)
def test_entries_that_retention_removed_are_reported_and_the_rest_is_pushed(
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


@pytest.mark.deep(stands_in="test_a_push_skips_purged_entries_and_one_process_pushes_a_log")
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


def test_a_damaged_entry_delays_none_behind_it(
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
