"""Puts records as fast as it can, and reports which are durable, until it is killed.

    python -m tests.sidecar.spool.writer_process DIRECTORY LIFE DESCRIPTOR

Prints a line for each durable record: its id and the hash of its core. Every second life also
ships, to the descriptor.
"""

import asyncio
import os
import sys
from pathlib import Path

import uvloop

from sidecar.spool import Spool
from sidecar.spool.errors import SpoolFull
from tests.sidecar.spool.running_spool import CLOCK, SOURCE, record, settings

WRITERS = 32


async def main(root: Path, life: int, shipping: int) -> None:
    spool = await Spool.open(settings(root), SOURCE, CLOCK, os.urandom)
    async with asyncio.TaskGroup() as group:
        group.create_task(spool.run())
        for writer in range(WRITERS):
            group.create_task(write(spool, f"{life}.{writer}"))
        if life % 2:
            group.create_task(ship(spool, shipping))
        os.write(1, b"ready\n")


async def write(spool: Spool, name: str) -> None:
    count = 0
    while True:
        eid = f"{name}.{count}"
        try:
            placed = spool.put(record(eid, query="q" * 2000), denial=False)
        except SpoolFull:  # a slow machine kills late: until then nothing more finds a place
            await asyncio.sleep(0.05)
            continue
        await placed.durable
        # The answer leaves: from here on the record must exist.
        os.write(1, f"{eid} {placed.core_hash.hex()}\n".encode())
        count += 1


async def ship(spool: Spool, shipping: int) -> None:
    """Acknowledge like a control API: the line is printed before the acknowledgement."""
    os.write(shipping, b"\n")  # a former life may have ended within a line
    while True:
        await spool.wait_unshipped()
        batch = await spool.batch(200_000)
        assert batch is not None
        for payload in batch.payloads:
            os.write(shipping, payload + b"\n")
        await spool.acknowledge(batch.instance, batch.last_n)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
