"""When logs are signed: on change, hourly if idle, and again after a failure."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

from control_api.checkpoint_store.location import FileStore
from control_api.log.append import Log
from control_api.log.checkpoints.loop import CheckpointLoop
from control_api.metrics.labels import Signing
from tests.control_api.log.checkpoints.signing import grow, latest, maker, sizes
from tests.support.open_store import OTHER, TENANT, OpenStore, decision, event_id

HOUR = 3_600_000_000


class Turns:
    """A loop that a test turns by hand."""

    def __init__(self, world: OpenStore, notes: Path, seconds: float = 0.0) -> None:
        self.counted: Counter[Signing] = Counter()
        self.maker = maker(world, notes)
        self.loop = CheckpointLoop(
            world.store, self.maker, seconds, event_id, lambda each: self.counted.update([each])
        )

    async def once(self) -> None:
        await self.loop.once()


async def kinds(world: OpenStore) -> list[str]:
    query = "SELECT kind FROM log_entries WHERE tenant_id = :t ORDER BY seq"
    return [row.kind for row in await world.rows(query, t=TENANT)]


async def test_only_logs_that_changed_are_signed_and_an_idle_one_within_the_hour(
    world: OpenStore, notes: Path
) -> None:
    turns = Turns(world, notes)
    await grow(world, 2)
    await world.log.append(OTHER, decision())
    await turns.once()
    assert turns.counted == {Signing.signed: 2}
    await turns.once()
    assert turns.counted == {Signing.signed: 2}
    await grow(world, 1)
    await turns.once()
    assert turns.counted == {Signing.signed: 3}
    assert latest(notes).size == 3
    # One replica writes the hour's heartbeat, and what one has just signed the other leaves.
    other = Turns(world, notes, 60.0)
    await other.once()  # compares every log itself, once
    world.now.ahead += HOUR + 1
    for each in (turns, other, turns, other):
        await each.once()
    assert await kinds(world) == ["decision"] * 3 + ["heartbeat"]
    await turns.once()
    await grow(world, 1)
    await turns.once()
    await grow(world, 1)
    await other.once()
    assert latest(notes).size == 5
    world.now.ahead += 60_000_000
    await other.once()
    assert latest(notes).size == 6


@pytest.mark.deep(
    stands_in="test_only_logs_that_changed_are_signed_and_an_idle_one_within_the_hour"
)
async def test_an_idle_log_gets_a_heartbeat_an_hour_from_one_replica(
    world: OpenStore, notes: Path
) -> None:
    replicas = [Turns(world, notes) for _ in range(3)]
    await grow(world, 1)
    for hours in range(3):
        for each in replicas:
            await each.once()
            await each.once()
        assert await kinds(world) == ["decision"] + ["heartbeat"] * hours
        assert latest(notes).size == hours + 1
        world.now.ahead += HOUR + 1


@pytest.mark.deep(
    stands_in="test_only_logs_that_changed_are_signed_and_an_idle_one_within_the_hour"
)
async def test_a_log_that_another_replica_just_signed_is_not_signed_again(
    world: OpenStore, notes: Path
) -> None:
    first, second = Turns(world, notes, 60.0), Turns(world, notes, 60.0)
    await grow(world, 1)
    await first.once()
    await second.once()  # compares every log itself, once
    await grow(world, 1)
    await second.once()  # the other has just signed it
    assert latest(notes).size == 1
    world.now.ahead += 60_000_000
    await second.once()
    assert latest(notes).size == 2


async def test_a_failure_is_logged_once_and_tried_again(
    world: OpenStore, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns(world, notes)
    await turns.once()
    notes.mkdir()
    (notes / TENANT).write_text("no directory")
    await grow(world, 1)
    for _ in range(3):
        await turns.once()
    assert turns.counted == {Signing.failed: 3}
    assert await world.rows("SELECT 1 FROM checkpoints") == []
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    (notes / TENANT).unlink()
    await turns.once()
    assert sizes(notes) == [1]


async def test_a_log_that_the_database_has_lost_is_found(
    world: OpenStore, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await grow(world, 1)
    await Turns(world, notes).once()
    for table in ("log_entries", "openings", "log_heads", "checkpoints", "tree_nodes"):
        await world.rows(f"DELETE FROM {table}")
    turns = Turns(world, notes)
    await turns.once()
    assert set(turns.maker.diverged) == {TENANT}
    assert turns.counted == {Signing.refused: 1}
    [told] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert f"--log {TENANT}" in told.getMessage()
    # Decisions go on, and what has not changed is told once.
    world.log = Log(world.store)
    for _ in range(3):
        caplog.clear()
        await grow(world, 1)
        await turns.once()
    assert turns.counted == {Signing.refused: 4}
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


async def test_replicas_with_separate_stores_report_it_and_sign_within_the_hour(
    world: OpenStore, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is up to date within the hour is ahead of every purge: it removes what is older
    than a day."""
    busy, quiet = Turns(world, notes, 10_000.0), Turns(world, notes.with_name("own"), 10_000.0)
    await grow(world, 1)
    await busy.once()
    await quiet.once()  # its store is new
    [lost] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "has lost the checkpoints" in lost.getMessage()
    assert FileStore(notes.with_name("own")).latest(TENANT) == FileStore(notes).latest(TENANT)
    caplog.clear()
    for each in range(2):
        world.now.ahead += HOUR // 2
        await grow(world, 1)
        assert await busy.maker.make(TENANT)
        await quiet.once()
        assert latest(notes.with_name("own")).size == (1, 3)[each]
    assert (busy.maker.store_is_split, quiet.maker.store_is_split) == (False, True)
    [said] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "Another replica uses another store" in said.getMessage()
