"""Fills a log quickly, for benchmarks that need a long one.

    python -m tests.benchmarks.make_log DATABASE_URL ENTRIES

Decisions of many agents in many sessions on many sources, each with its openings, numbered, chained
and stored by the service's own code in large transactions; counts and the search index are kept
like everything else. The database must be migrated; a new one gets the tenant `default`. A
million entries take 75 s of CPU on SQLite: 13,000 a second, if the core is free.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator

from sqlalchemy import Connection

from control_api.store.log.chain import LogChain
from policies.trail.record import Record
from tests.support.open_store import TENANT, OpenStore, decision, opened

BATCH = 4_000
KINDS = 2_000
"""Different records; each entry is one of them with an id of its own."""


def records(first: int, count: int) -> Iterator[Record]:
    """Records with the ids `event-<number>` from `first` on."""
    made = [
        decision(
            "DENY" if number % 7 == 0 else "ALLOW",
            agent_id=f"agent-{number % 50}",
            session_id=f"s-{number % 200}",
            source_id=f"source-{number % 40}",
            eid="event-0",
        )
        for number in range(min(KINDS, count))
    ]
    for number, record in zip(range(first, first + count), itertools.cycle(made), strict=False):
        eid = f"event-{number}"
        head = record.head.replace(b'"eid":"event-0"', b'"eid":"%b"' % eid.encode())
        yield record._replace(eid=eid, head=head)


async def make_log(world: OpenStore, entries: int, tenant_id: str = TENANT) -> None:
    """Appends this many entries; their ids are `event-<seq>` if the log was empty."""
    store = world.store
    async with store.reading(tenant_id) as connection:
        found = await connection.exec_driver_sql("SELECT coalesce(max(size), 0) FROM log_heads")
        first = int(found.scalar_one())
    made = records(first, entries)
    while batch := list(itertools.islice(made, BATCH)):

        def work(connection: Connection, _: bool, batch: list[Record] = batch) -> None:
            chain = LogChain.load(connection, tenant_id)
            for record in batch:
                chain.add(record, world.now())
            chain.save(connection)

        await store.run(store.lane(tenant_id), work)


async def main(url: str, entries: int) -> None:
    async with opened(url) as world:
        started = time.monotonic()
        await make_log(world, entries)
        print(f"{entries / (time.monotonic() - started):,.0f} entries/s")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
