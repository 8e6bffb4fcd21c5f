"""A process with many concurrent writers to the log, which reports each answer until it is killed.

python -m tests.control_api.log.writer URL FILE
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from control_api.log.ingest import ingest
from control_api.store.transaction import Transaction
from policies.trail.change import change_record
from policies.trail.record import Record, gap_record
from tests.support.open_store import TENANT, OpenStore, Spool, decision, event_id, opened

Say = Callable[..., None]


async def main(url: str, answered: str) -> None:
    file = os.open(answered, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(*eids: str) -> None:
        os.write(file, "".join(f"{eid}\n" for eid in eids).encode())

    async with opened(url) as world, asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(_append(world, say))
        group.create_task(_manage(world, say))
        group.create_task(_deliver(world, say))


async def _append(world: OpenStore, say: Say) -> None:
    while True:
        say((await world.log.append(TENANT, decision())).eid)


async def _manage(world: OpenStore, say: Say) -> None:
    while True:
        record = change_record("t", "x", "system", {}, record_id=event_id())

        async def change(tx: Transaction, record: Record = record) -> None:
            await tx.append(record)
            await tx.publish({"role/x": os.urandom(8)})

        await world.store.write(TENANT, change)
        say(record.eid)


async def _deliver(world: OpenStore, say: Say) -> None:
    spool = Spool(instance=event_id())
    while True:
        gaps = [
            gap_record("t", instance=None, first=None, lost=1, record_id=event_id())
            for _ in range(8)
        ]
        batch = [spool.record(gap) for gap in gaps]
        await ingest(world.store, TENANT, spool.source, spool.instance, batch)
        say(*(gap.eid for gap in gaps))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
