"""`kill -9` during an erasure: what is gone is recorded as erased, the rest is whole, and a second
request erases it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import orjson
import pytest

from control_api.log.verify import verify
from tests.control_api.log.eraser import STEP
from tests.control_api.log.erasing import erase, opened_seqs
from tests.support.open_store import TENANT, OpenStore, decision, opened

SEED = "seeded-2d8e@person"
EVENTS = 24


async def named(world: OpenStore) -> list[int]:
    """The entries that the log's `redact` entries name."""
    rows = await world.rows("SELECT entry FROM log_entries WHERE kind = 'redact' ORDER BY seq")
    ranges = [each for row in rows for each in orjson.loads(row.entry)["pub"]["events"]]
    return [seq for first, last in ranges for seq in range(first, last + 1)]


async def valid(world: OpenStore) -> None:
    answer = await verify(world.store, TENANT)
    assert answer["valid"], answer


@pytest.mark.parametrize(("moment", "steps_done"), [("before", 1), ("after", 2)])
async def test_an_erasure_killed_between_steps_is_finished_by_the_next(
    either_url: str, moment: str, steps_done: int
) -> None:
    async with opened(either_url) as world:
        records = [decision(user_id=SEED if at % 2 else f"u-{at}") for at in range(2 * EVENTS)]
        made = await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
        person = {each.seq for each in made[1::2]}
        before = await opened_seqs(world)
        assert person <= before
    command = (sys.executable, "-m", "tests.control_api.log.eraser")
    killed = subprocess.run([*command, either_url, SEED, "2", moment], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    async with opened(either_url) as world:  # checks the heads
        gone = before - await opened_seqs(world)
        assert gone < person
        assert len(gone) == steps_done * STEP
        assert sorted(gone) == await named(world)
        await valid(world)
        second = await erase(world, user_id=SEED)
        assert (second.entries, second.more) == (EVENTS - len(gone), False)
        assert before - await opened_seqs(world) == person
        assert sorted(person) == await named(world)
        await valid(world)
