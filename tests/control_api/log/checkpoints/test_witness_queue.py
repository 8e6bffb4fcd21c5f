"""Whose turn it is with a witness that knows some logs and not others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from control_api.log.checkpoints.witnesses import LONGEST_PAUSE, WitnessQueue
from control_api.store.queries.checkpoints import StoredCheckpoint
from tests.support.loop_clock import LoopClock, moving_clock

GROWING = (1, 2, 4, 8, 16, 32, 60, 60)
"""Seconds after which a refused log's pause is the longest."""
UNKNOWN = [f"unknown-{at}" for at in range(5)]


def checkpoint(size: int) -> StoredCheckpoint:
    return StoredCheckpoint("log", size, b"root", b"", f"note of {size}", 0)


@pytest.fixture
async def clock() -> AsyncIterator[LoopClock]:
    with moving_clock() as moving:
        yield moving


@pytest.fixture
def queue(clock: LoopClock) -> WitnessQueue:
    return WitnessQueue(clock.monotonic)


async def asked(queue: WitnessQueue, clock: LoopClock, *seconds: float) -> list[str]:
    """Whom the witness is asked for meanwhile; it refuses all of `UNKNOWN`, and cosigns others."""
    found: list[str] = []

    async def ask() -> None:
        while True:
            tenant_id, made = await queue.next()
            found.append(tenant_id)
            if tenant_id in UNKNOWN:
                queue.retry(tenant_id)
            else:
                queue.done(tenant_id, made)

    task = asyncio.create_task(ask())
    for each in seconds:
        await clock.skip(each)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


async def test_a_log_that_a_witness_does_not_know_delays_no_other(
    queue: WitnessQueue, clock: LoopClock
) -> None:
    for each in UNKNOWN:
        queue.put(each, checkpoint(1))
    await asked(queue, clock, *GROWING)
    for size in range(1, 11):
        queue.put("known", checkpoint(size))
        for each in UNKNOWN:
            queue.put(each, checkpoint(size))
        assert (await asked(queue, clock, 1)).count("known") == 1


async def test_a_refused_log_is_sent_again_after_a_pause_that_doubles(
    queue: WitnessQueue, clock: LoopClock
) -> None:
    queue.put(UNKNOWN[0], checkpoint(1))
    assert len(await asked(queue, clock, 0.9, 0.2, 1.7, 0.3)) == 3  # at 0, 1 and 3 seconds
    await asked(queue, clock, *GROWING[2:])
    assert len(await asked(queue, clock, *[LONGEST_PAUSE / 2] * 8)) == 4
    assert queue.waits() > sum(GROWING) + 4 * LONGEST_PAUSE


async def test_a_checkpoint_made_while_another_was_cosigned_is_next(
    queue: WitnessQueue,
) -> None:
    queue.put("known", checkpoint(1))
    tenant_id, made = await queue.next()
    queue.put(tenant_id, checkpoint(2))
    queue.done(tenant_id, made)
    tenant_id, made = await queue.next()
    assert (tenant_id, made) == ("known", checkpoint(2))
    queue.done(tenant_id, made)
    assert queue.waits() == 0
