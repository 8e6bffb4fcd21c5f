"""`kill -9` at any moment: every answered record is in the log, once, and the log verifies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from control_api.log.verify import verify
from tests.runner import tiers
from tests.support.open_store import TENANT, opened
from tests.support.properties import few
from tests.support.waiting import until


def _killed(url: str, answered: Path, size: int) -> None:
    """Lets a writer answer so many more bytes, then kills it."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.control_api.log.writer", url, str(answered)]
    )
    begun = answered.stat().st_size if answered.exists() else 0

    def enough() -> bool:
        assert writer.poll() is None, "the writer ended by itself"
        return answered.exists() and answered.stat().st_size > begun + size

    until("the writer has answered enough", enough)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()


@tiers.sampled("either_url")
@pytest.mark.parametrize("seed", range(2))
async def test_every_answered_record_survives_a_kill_once(
    either_url: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    answered, lines = tmp_path / "answered", list[str]()
    async with opened(either_url):
        pass
    for _ in range(few(4, at_least=2)):
        _killed(either_url, answered, chance.randrange(8_000))
        async with opened(either_url) as world:  # checks the heads
            rows = await world.rows("SELECT seq, eid FROM log_entries ORDER BY seq")
            assert [row.seq for row in rows] == list(range(len(rows)))
            stored = [row.eid for row in rows]
            assert len(set(stored)) == len(stored)
            # A line cut by the kill does not count as an answer.
            lines = answered.read_text().split("\n")[:-1]
            assert set(lines) <= set(stored)
            answer = await verify(world.store, TENANT)
            assert answer["valid"], answer
            held = await world.rows("SELECT source, n FROM sources")
            counted = await world.rows("SELECT count(*) FROM log_entries WHERE kind = 'gap'")
            assert sum(row.n + 1 for row in held) == counted[0][0]
    assert len(lines) > 20
