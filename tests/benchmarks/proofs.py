"""What a proof costs in a long log, on SQLite and PostgreSQL.

    python -m tests.benchmarks.proofs [sqlite | postgresql] [ENTRIES]

Inclusion of random events in the latest checkpoint, and consistency from random sizes, verified
like for an answer; beside the floor, which is finding the same event for a list. In this process,
one request after another. The log is filled by `make_log` and signed by the service's own
checkpoint maker first: some five minutes for a million entries on each database.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from control_api.log import read
from control_api.log.proofs import prove_entry, prove_growth
from control_api.store.migrate import migrate
from tests.benchmarks.make_log import make_log
from tests.benchmarks.measure import Figure
from tests.benchmarks.postgresql import server
from tests.control_api.log.checkpoints.signing import SIGNER, maker
from tests.support import migrated
from tests.support.open_store import TENANT, OpenStore, opened
from tests.support.postgres import serving

ENTRIES = 1_000_000
ASKED = 500
MOST = 5.0


async def milliseconds(ask: Callable[[int], Awaitable[object]], numbers: list[int]) -> list[float]:
    taken = []
    for number in numbers:
        started = time.perf_counter()
        await ask(number)
        taken.append((time.perf_counter() - started) * 1000)
    return sorted(taken)


async def measured(world: OpenStore, folder: Path, entries: int) -> list[tuple[str, list[float]]]:
    await make_log(world, entries)
    started = time.monotonic()
    made = await maker(world, folder / "checkpoints").make(TENANT)
    assert made is not None
    assert made.size == entries
    print(f"read back and signed in {time.monotonic() - started:.0f} s", flush=True)
    store, publics = world.store, (SIGNER.public,)
    draw = random.Random(3)
    numbers = [draw.randrange(1, entries) for _ in range(ASKED)]

    async def found(number: int) -> None:
        await read.event(store, TENANT, f"event-{number}")

    async def proven(number: int) -> None:
        await prove_entry(store, TENANT, f"event-{number}", None, publics)

    async def consistent(number: int) -> None:
        await prove_growth(store, TENANT, number, None, publics)

    cases = {"finding an event": found, "inclusion": proven, "consistency": consistent}
    return [(name, await milliseconds(ask, numbers)) for name, ask in cases.items()]


async def run(url: str, entries: int) -> list[tuple[str, list[float]]]:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(url) as world:
            return await measured(world, Path(folder), entries)


def figures(name: str, entries: int) -> Iterable[Figure]:
    if name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data" / "sluice.db"
            migrated.sqlite(path)
            results = asyncio.run(run(f"sqlite:///{path}", entries))
    else:
        with server() as running, running.database() as url:
            asyncio.run(migrate(url, serving(url)))
            results = asyncio.run(run(serving(url), entries))
    floor = statistics.median(results[0][1])
    for what, taken in results[1:]:
        median, p99 = statistics.median(taken), taken[len(taken) * 99 // 100]
        yield Figure(
            f"{what}, {entries:,} entries, {name}",
            f"{median:.2f} ms, p99 {p99:.2f}; finding {floor:.2f} ms",
            median / MOST,
            f"<= {MOST:.0f} ms",
            median <= MOST,
        )


if __name__ == "__main__":
    many = int(sys.argv[2]) if sys.argv[2:] else ENTRIES
    for each in [sys.argv[1]] if sys.argv[1:] else ["sqlite", "postgresql"]:
        for figure in figures(each, many):
            print(figure.row(), flush=True)
