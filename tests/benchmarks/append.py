"""What an append costs on SQLite, and how much of it is the counting that goes with it.

    python -m tests.benchmarks.append

CPU of the whole process for a record, 64 waiting at a time, making the records not included; with
the counts and without them, turn about. What is counted twice in a batch costs once, so the cost
depends on how alike the records are. About a minute.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import uvloop

from control_api.store.counters.counters import BatchCounts
from control_api.store.log import chain
from policies.trail.entry import Index
from policies.trail.record import Record
from tests.support.open_store import TENANT, OpenStore, decision, opened

WAITING = 64
RECORDS = 6_000
ROUNDS = 5
MIXES = {
    "one caller": (1, 1, 1),
    "20 agents, 40 sessions, 10 sources": (20, 40, 10),
    "2,000 agents, 5,000 sessions, 400 sources, each with each": (2_000, 5_000, 400),
}


class Uncounted(BatchCounts):
    """Counts nothing, for comparison."""

    def add(self, index: Index, source_type: str) -> None:
        pass


def made(agents: int, sessions: int, sources: int) -> list[Record]:
    chance = random.Random(1)
    return [
        decision(
            "DENY" if number % 7 == 0 else "ALLOW",
            agent_id=f"agent-{chance.randrange(agents)}",
            session_id=f"session-{chance.randrange(sessions)}",
            source_id=f"source-{chance.randrange(sources)}",
        )
        for number in range(RECORDS)
    ]


async def taken(world: OpenStore, records: list[Record]) -> float:
    """CPU microseconds per record."""
    left = iter(records)

    async def one() -> None:
        for record in left:
            await world.log.append(TENANT, record)

    started = time.process_time()
    await asyncio.gather(*(one() for _ in range(WAITING)))
    return (time.process_time() - started) / len(records) * 1e6


async def compared(make: Callable[[], list[Record]]) -> tuple[float, float]:
    """Medians with and without counts, each in its own database. The first round is a warm-up."""
    costs: dict[type[BatchCounts], list[float]] = {BatchCounts: [], Uncounted: []}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        url = f"sqlite+aiosqlite:///{directory}/{{}}.db"
        async with opened(url.format("counted")) as counted, opened(url.format("bare")) as bare:
            for _ in range(ROUNDS + 1):
                for tally, world in ((BatchCounts, counted), (Uncounted, bare)):
                    with patch.object(chain, "BatchCounts", tally):
                        costs[tally].append(await taken(world, make()))
    return statistics.median(costs[BatchCounts][1:]), statistics.median(costs[Uncounted][1:])


async def main() -> None:
    for name, numbers in MIXES.items():
        counted, without = await compared(partial(made, *numbers))
        print(f"{name:<60} {counted:.1f} µs, {without:.1f} µs without counts", flush=True)


if __name__ == "__main__":
    uvloop.run(main())
