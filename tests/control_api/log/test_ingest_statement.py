"""On PostgreSQL, a spool's batch after another one is a single statement. Whatever goes wrong, each
record is in the log once, and the receipt names the last one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asyncpg import SerializationError
from sqlalchemy.exc import DBAPIError

from control_api.log.ingest import IngestReceipt, ingest
from control_api.log.verify import verify
from control_api.store.log import index as log_index
from policies.ground.errors import Conflict
from policies.trail.record import heartbeat_record
from tests.support.open_store import OTHER, TENANT, OpenStore, Spool, decision, event_id, opened


async def take(
    world: OpenStore, spool: Spool, payloads: list[dict[str, Any]], tenant_id: str = TENANT
) -> IngestReceipt:
    heads = world.log.heads
    return await ingest(world.store, tenant_id, spool.source, spool.instance, payloads, heads=heads)


class Sent:
    """Counts a world's transactions and single statements, and makes a statement fail."""

    def __init__(self, world: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.statements = 0, list[bool]()
        self.failure = ""
        database = world.database
        run, autocommit = database.run, database.autocommit
        assert autocommit is not None

        async def counted_run(*asked: Any) -> Any:
            self.runs += 1
            return await run(*asked)

        async def counted_autocommit(*asked: Any) -> bool:
            failure, self.failure = self.failure, ""
            if failure == "conflict":
                raise DBAPIError(None, None, SerializationError())
            if failure == "lost before":
                raise ConnectionResetError
            self.statements.append(await autocommit(*asked))
            if failure == "lost after":
                raise ConnectionResetError
            return self.statements[-1]

        monkeypatch.setattr(database, "run", counted_run)
        monkeypatch.setattr(database, "autocommit", counted_autocommit)


async def verified(world: OpenStore, total: int, tenant_id: str = TENANT) -> None:
    report = await verify(world.store, tenant_id)
    assert (report["valid"], report["total"], report["reason"]) == (True, total, None)
    (rows,) = await world.rows(
        "SELECT count(*), count(DISTINCT eid) FROM log_entries WHERE tenant_id = :tenant",
        tenant=tenant_id,
    )
    assert tuple(rows) == (total, total)


async def test_a_batch_of_a_known_spool_is_one_statement(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as world:
        sent, spool, other = Sent(world, monkeypatch), Spool(), Spool(instance="i2")
        for number in range(1, 5):
            receipt = await take(world, spool, spool.records(70))
            assert receipt == IngestReceipt(number * 70 - 1, spool.hashes[-1])
        assert (sent.runs, sent.statements) == (1, [True] * 3)
        # A new spool begins with a row of its own; the log's end stays known.
        await take(world, other, other.records(3))
        await take(world, other, other.records(3))
        await take(world, spool, spool.records(3))
        assert (sent.runs, sent.statements) == (2, [True] * 5)
        await verified(world, 289)


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_head_cache.py::test_due_blocks_and_excess_rows_are_written_with_their_batch"
)
async def test_due_index_blocks_are_written_with_the_batch(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    async with opened(postgresql_url) as world:
        spool = Spool()
        for _ in range(6):
            await take(world, spool, spool.records(30))
        await verified(world, 180)


@pytest.mark.parametrize("failure", ["conflict", "lost before", "lost after"])
async def test_a_failed_statement_loses_and_duplicates_nothing(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    async with opened(postgresql_url) as world:
        sent, spool = Sent(world, monkeypatch), Spool()
        await take(world, spool, spool.records(5))
        sent.failure = failure
        assert await take(world, spool, spool.records(5)) == IngestReceipt(9, spool.hashes[9])
        assert await take(world, spool, spool.records(5)) == IngestReceipt(14, spool.hashes[14])
        assert sent.failure == ""
        await verified(world, 15)


async def test_cached_ends_are_compared_with_the_log_and_the_spool(postgresql_url: str) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:
        spool, other = Spool(), Spool(source="sidecar-2")
        await take(one, spool, spool.records(3))
        batch = spool.records(3)
        await take(two, spool, batch)
        # The log's end is known again, and the spool's is that of before.
        await one.log.append(TENANT, decision())
        assert await take(one, spool, batch) == IngestReceipt(5, spool.hashes[5])
        for number in range(4):
            world, batch = (one, two)[number % 2], other.records(2)
            receipts = await asyncio.gather(*(take(world, other, batch) for _ in range(2)))
            assert set(receipts) == {IngestReceipt(other.n - 1, other.hashes[-1])}
        # The spool's end is known, and the log's is that of before.
        await take(two, other, other.records(2))
        await one.log.append(TENANT, decision())
        receipt = await take(two, other, other.records(2))
        assert receipt == IngestReceipt(other.n - 1, other.hashes[-1])
        await verified(one, 20)


@pytest.mark.deep(stands_in="test_cached_ends_are_compared_with_the_log_and_the_spool")
async def test_records_ingested_by_another_process_are_not_ingested_again(
    postgresql_url: str,
) -> None:
    """Each has cached ends from before: of the log, of the spool, or of both."""
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:
        spool, other = Spool(), Spool(source="sidecar-2")
        await take(one, spool, spool.records(5))
        batch = spool.records(5)
        await take(two, spool, batch)
        assert await take(one, spool, batch) == IngestReceipt(9, spool.hashes[9])
        await take(two, other, other.records(5))
        for number in range(6):
            await take((one, two)[number % 2], spool, spool.records(5))
            await take((two, one)[number % 2], other, other.records(5))
        await verified(one, 75)
        for world in (two, one):
            await take(one, spool, spool.records(1))
            await world.log.append(TENANT, decision())
        await verified(one, 79)
        # A copy of the spool, written in two places.
        n, prev, hashes = spool.n, spool.prev, [*spool.hashes]
        await take(one, spool, spool.records(2))
        await one.log.append(TENANT, decision())
        copied = Spool(spool.source, spool.instance, n, prev, hashes)
        for world in (one, two):
            with pytest.raises(Conflict):
                await take(world, copied, copied.records(2))
            copied = Spool(spool.source, spool.instance, n, prev, [*hashes])
        await verified(two, 82)


@pytest.mark.deep(stands_in="test_cached_ends_are_compared_with_the_log_and_the_spool")
async def test_posts_and_decisions_at_once_make_one_log(postgresql_url: str) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:

        async def posting(world: OpenStore, number: int) -> None:
            spool = Spool(source=f"sidecar-{number}")
            for _ in range(8):
                batch = spool.records(4)
                receipts = await asyncio.gather(*(take(world, spool, batch) for _ in range(2)))
                assert set(receipts) == {IngestReceipt(spool.n - 1, spool.hashes[-1])}

        async def deciding(world: OpenStore) -> None:
            for _ in range(8):
                await world.log.append(TENANT, decision())

        await asyncio.gather(
            *(posting((one, two)[number % 2], number) for number in range(8)),
            *(deciding((one, two)[number % 2]) for number in range(8)),
        )
        await verified(one, 8 * 8 * 4 + 64)


async def test_a_revision_that_is_new_is_acknowledged(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world:
        spool = Spool()
        for revision in (3, 3, 4, 3):
            beat = heartbeat_record(revision, record_id=event_id())
            await take(world, spool, [spool.record(beat)])
        rows = await world.rows("SELECT revision, seq FROM acknowledgements ORDER BY seq")
        assert [tuple(row) for row in rows] == [(3, 0), (4, 2)]


async def test_each_tenant_has_spools_of_its_own(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world:
        spools = {TENANT: Spool(), OTHER: Spool()}
        for _ in range(3):
            for tenant_id, spool in spools.items():
                await take(world, spool, spool.records(4), tenant_id)
        for tenant_id in spools:
            await verified(world, 12, tenant_id)
