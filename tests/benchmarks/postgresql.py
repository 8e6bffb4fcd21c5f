"""The store on PostgreSQL: appends compared with a bare COPY of the same rows, and evaluations.

    python -m tests.benchmarks.postgresql [append | evaluate]

Runs its own server with `fsync` on, away from the core of the service. About two minutes.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from control_api.store.migrate import migrate
from control_api.store.schema.log import log_entries, openings
from policies.trail.record import Record
from tests.benchmarks import mixed
from tests.benchmarks.measure import SERVER, Figure, directory
from tests.benchmarks.turns import with_cpu
from tests.support import postgres
from tests.support.open_store import TENANT, OpenStore, decision, opened
from tests.support.stack import Stack

WAITING = 64
APPENDING = 128
"""Callers that append: a batch of half of them is in progress while the other half is numbered."""
RECORDS = 12_000
ROUNDS = 5
MIXES = {"one caller": (1, 0, 1), "20 agents, 40 sessions, 10 sources": (20, 40, 10)}


@contextmanager
def server() -> Iterator[postgres.Server]:
    # Not in a test run's folder: as root, `nobody` must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="sluice-bench-"))
    owner = os.fork()
    if owner == 0:
        time.sleep(3600)
        os._exit(0)
    try:
        yield postgres.shared_server(folder, owner, durable=True)
    finally:
        os.kill(owner, 9)
        os.waitpid(owner, 0)


def made(agents: int, sessions: int, sources: int) -> list[Record]:
    """Records. Similar ones cost less to count and to index. No sessions if `sessions` is 0."""
    return [
        decision(
            "DENY" if number % 7 == 0 else "ALLOW",
            agent_id=f"agent-{number % agents}",
            session_id=f"session-{number % sessions}" if sessions else None,
            source_id=f"source-{number % sources}",
        )
        for number in range(RECORDS)
    ]


async def appended(world: OpenStore, records: list[Record]) -> float:
    """Append with `APPENDING` callers waiting at a time. Returns records per second."""
    left = iter(records)

    async def one() -> None:
        for record in left:
            await world.log.append(TENANT, record)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(APPENDING)))
    return len(records) / (time.perf_counter() - started)


async def copied(
    connection: Any, rows: list[list[Any]], sizes: list[int], prefix: str = ""
) -> float:
    """Copy the same rows of entries and openings, one transaction per batch. Returns records per
    second."""
    at, started = 0, time.perf_counter()
    for size in sizes:
        async with connection.transaction():
            for table, each in zip((log_entries, openings), rows, strict=True):
                await connection.copy_records_to_table(
                    prefix + table.name, records=each[at : at + size]
                )
        at += size
    return len(rows[0]) / (time.perf_counter() - started)


async def round_of(
    world: OpenStore, bare: Any, first: int, mix: tuple[int, int, int]
) -> tuple[float, float, float]:
    """Records per second of ours and of COPY, and the median batch size."""
    ours = await appended(world, made(*mix))
    rows = []
    reader = await asyncpg.connect(postgres.unbound(world.url).replace("+asyncpg", ""))
    # How they fell into batches: the rows of one transaction have the same `xmin`.
    batches = await reader.fetch(
        f"SELECT count(*) FROM {log_entries.name} WHERE seq >= $1 GROUP BY xmin ORDER BY min(seq)",
        first,
    )
    sizes = [row[0] for row in batches]
    for table in (log_entries, openings):
        names = ", ".join(table.c.keys())
        query = f"SELECT {names} FROM {table.name} WHERE seq >= $1 ORDER BY seq"
        rows.append([tuple(row) for row in await reader.fetch(query, first)])
    await reader.close()
    theirs = await copied(bare, rows, sizes)
    return ours, theirs, statistics.median(sizes)


async def compared(server: postgres.Server, rounds: int, mix: str) -> Figure:
    with server.database() as url, server.database() as other:
        serving = postgres.serving(url)
        await migrate(url, serving)
        await migrate(other)
        # Row-level security does not bind the superuser: the floor pays for none of our work.
        bare = await asyncpg.connect(postgres.unbound(other).replace("+asyncpg", ""))
        async with opened(serving) as world:
            results = [
                await round_of(world, bare, RECORDS * at, MIXES[mix]) for at in range(rounds + 1)
            ][1:]
        await bare.close()
    ours, theirs, batch = (statistics.median(each) for each in zip(*results, strict=True))
    ratio = statistics.median(a / b for a, b, _ in results)
    name = f"append to PostgreSQL, {mix}"
    value = f"{ours:,.0f}/s against {theirs:,.0f}/s by COPY, {batch:.0f} a batch"
    return Figure(name, value, ratio, ">= 0.45", ratio >= 0.45)


def control_evaluate(server: postgres.Server, seconds: int, rounds: int) -> Figure:
    """Evaluations per second, each response after its commit; requests that differ."""
    with server.database() as url, directory() as place:
        serving = postgres.serving(url)
        asyncio.run(migrate(url, serving))
        stack = Stack(place, mixed.policies(), control_cores=SERVER, database_url=serving)
        try:
            stack.start_control()
            stack.prepare()
            mixed.register(stack)
            sent = mixed.evaluations(stack.agent_key)
            turn = with_cpu(
                lambda: mixed.send(sent, stack.control.port, WAITING, seconds), [stack.control]
            )
            turn()
            runs = [turn() for _ in range(rounds)]
            assert stack.verify()["valid"]
        finally:
            stack.stop()
    rate = statistics.median(run["rate"] for run in runs)
    slow, cpu = (statistics.median(run[name] for run in runs) for name in ("p99", "cpu"))
    name = "control API evaluate, PostgreSQL, 64 connections"
    value = f"{rate:,.0f}/s, p99 {slow:.0f} ms, {cpu:.0f} µs CPU"
    return Figure(name, value, None, ">= 5,000/s", rate >= 5000)


def figures(quick: bool, only: str = "") -> Iterator[Figure]:
    seconds, rounds = (3, 1) if quick else (8, ROUNDS)
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, every - SERVER or every)  # where the database is, too
    with server() as started:
        if only != "evaluate":
            os.sched_setaffinity(0, SERVER)
            for mix in MIXES:
                yield uvloop.run(compared(started, rounds, mix))
        os.sched_setaffinity(0, every)
        if only != "append":
            yield control_evaluate(started, seconds, rounds)


def main() -> None:
    for figure in figures(False, "".join(sys.argv[1:])):
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
