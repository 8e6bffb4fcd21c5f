"""The spool alone: what a record costs, how many a second, how long one waits. No HTTP.

python -m tests.benchmarks.spool [DIRECTORY]        on the file system of DIRECTORY
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from policies.ground.clock import Clock
from policies.retrieval import parse_retrieval
from policies.trail.record import Record
from policies.trail.spool_chain import core_hash, spool_payload, src_member
from sidecar.spool import Spool, SpoolSettings
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import crc32c
from tests.benchmarks.core import BODY, decide, policy_set
from tests.benchmarks.measure import Figure, per_call

CLOCK = Clock(now=lambda: time.time_ns() // 1000, monotonic=time.monotonic)
WAITERS = 64
RECORDS = 100_000
PUT_AT_ONCE = 200
FRAME = 1400
"""Bytes of a record of `synced`."""


def record() -> Record:
    return decide(policy_set(10), parse_retrieval(BODY))


def pieces(sample: Record) -> list[Figure]:
    """The parts of a `put`, one by one."""
    t = "2026-01-01T00:00:00.000000Z"
    prev = "A" * 43 + "="
    src = src_member("sidecar-1", "0" * 32, 1000, prev, t)
    core = sample.core(src)
    payload = spool_payload(core, sample.openings)
    parts = {
        "src": lambda: src_member("sidecar-1", "0" * 32, 1000, prev, t),
        "core": lambda: sample.core(src),
        "payload": lambda: spool_payload(core, sample.openings),
        "hash": lambda: core_hash(core),
        "crc32c": lambda: crc32c(payload),
    }
    value = ", ".join(f"{name} {per_call(work):.2f}" for name, work in parts.items())
    return [Figure(f"of a record of {len(payload)} bytes, µs", value, None, "", True)]


def synced(place: Path, seconds: float) -> dict[str, Any]:
    """One `fdatasync` after the other, of a record each, into a file like a spool's segment."""
    disk, size = Disk(), 8 * 2**20
    path, data = place / "synced", os.urandom(FRAME)
    disk.create_zeroed(path, size)
    file, taken, at = disk.open_to_write(path), [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        started_at = time.perf_counter()
        disk.write(file, data, at)
        disk.sync(file)
        taken.append(time.perf_counter() - started_at)
        at = (at + FRAME) % (size - FRAME)
    disk.close(file)
    disk.remove(path)
    taken.sort()
    p50, p99 = taken[len(taken) // 2] * 1e3, taken[len(taken) * 99 // 100] * 1e3
    return {"answers": len(taken), "p50": p50, "p99": p99, "rate": len(taken) / seconds, "cpu": 0.0}


async def putting(root: Path, sample: Record) -> list[Figure]:
    """CPU of `put` alone on the loop's thread, without the writer."""
    spool = await Spool.open(SpoolSettings(root / "put"), "sidecar-1", CLOCK, os.urandom)
    running = asyncio.create_task(spool.run())
    taken = []
    for _ in range(200):
        started = time.thread_time()
        for _ in range(PUT_AT_ONCE):
            spool.put(sample, denial=False)
        taken.append((time.thread_time() - started) / PUT_AT_ONCE * 1e6)
        await spool.put(sample, denial=False).durable
        await ship(spool)
    running.cancel()
    await spool.close(5)
    cost = statistics.median(taken)
    return [Figure("put, CPU", f"{cost:.2f} µs", None, "<= 4 µs", cost <= 4)]


async def ship(spool: Spool) -> int:
    """Acknowledge at once, as a fast control API would."""
    shipped = 0
    while (batch := await spool.batch(1_000_000)) is not None:
        await spool.acknowledge(batch.instance, batch.last_n)
        shipped += len(batch.payloads)
    return shipped


async def rate(root: Path, sample: Record, waiters: int, records: int) -> list[Figure]:
    """Closed loop: each waiter puts its next record once its last is durable; shipping continues
    meanwhile."""
    spool = await Spool.open(SpoolSettings(root / "rate"), "sidecar-1", CLOCK, os.urandom)
    running = asyncio.create_task(spool.run())
    left, waits, done = records, [], False

    async def client() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            started = time.perf_counter()
            await spool.put(sample, denial=False).durable
            waits.append(time.perf_counter() - started)

    async def shipper() -> None:
        while not done:
            await asyncio.sleep(0.01 if spool.depth < 512 else 0)
            batch = await spool.batch(1_000_000)
            if batch is not None:
                await spool.acknowledge(batch.instance, batch.last_n)

    shipping = asyncio.create_task(shipper())
    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(waiters)))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    done = True
    await shipping
    running.cancel()
    await spool.close(5)
    waits.sort()
    each = (
        f"p50 {waits[len(waits) // 2] * 1e3:.2f} p99 {waits[len(waits) * 99 // 100] * 1e3:.2f} ms"
    )
    value = f"{records / seconds:,.0f}/s, {cpu / records * 1e6:.1f} µs CPU, {each}"
    target = ("> 60,000/s", records / seconds > 60_000) if waiters > 1 else ("", True)
    return [Figure(f"durable, {waiters} waiting, shipped meanwhile", value, None, *target)]


async def reading(root: Path, sample: Record) -> list[Figure]:
    """The cost of recovery and shipping for 50,000 records."""
    settings = SpoolSettings(root / "read")
    spool = await Spool.open(settings, "sidecar-1", CLOCK, os.urandom)
    running = asyncio.create_task(spool.run())
    for _ in range(250):
        for _ in range(PUT_AT_ONCE - 1):
            spool.put(sample, denial=False)
        await spool.put(sample, denial=False).durable
    running.cancel()
    await spool.close(5)
    started = time.perf_counter()
    spool = await Spool.open(settings, "sidecar-1", CLOCK, os.urandom)
    opened = time.perf_counter() - started
    started = time.perf_counter()
    shipped = await ship(spool)
    seconds = time.perf_counter() - started
    await spool.close(5)
    return [
        Figure("open with 50,000 records", f"{opened * 1e3:.1f} ms", None, "", True),
        Figure("read back and acknowledge", f"{shipped / seconds:,.0f}/s", None, "", True),
    ]


def figures(root: Path) -> list[Figure]:
    sample = record()
    found = pieces(sample)
    with uvloop_runner() as runner:
        found += runner.run(putting(root, sample))
        found += runner.run(rate(root, sample, WAITERS, RECORDS))
        found += runner.run(rate(root, sample, 1, RECORDS // 20))
        found += runner.run(reading(root, sample))
    return found


def uvloop_runner() -> asyncio.Runner:
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as root:
        for figure in figures(Path(root)):
            print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
