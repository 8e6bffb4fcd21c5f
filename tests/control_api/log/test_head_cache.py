"""On PostgreSQL, a batch after one of the same process is a single statement. Whatever goes wrong,
the log stays one log, with every record in it once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asyncpg import SerializationError
from sqlalchemy.exc import DBAPIError

from control_api.log import head_cache
from control_api.log.head_cache import try_add
from control_api.log.ingest import ingest
from control_api.log.verify import verify
from control_api.store.log import index as log_index
from control_api.store.log.chain import Appended, LogChain
from control_api.store.transaction import Transaction
from policies.ground.errors import SluiceError
from policies.trail.change import change_record
from policies.trail.record import Record
from tests.support.open_store import (
    OTHER,
    TENANT,
    OpenStore,
    Spool,
    decision,
    event_id,
    opened,
    sql,
)
from tests.support.waiting import turns, until_async

HEAD = "SELECT size, last_leaf, last_ts, frontier FROM log_heads WHERE tenant_id = :tenant"
MOVED = "size = :size, last_leaf = :leaf, last_ts = :ts, frontier = :frontier"
WAITING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
RESTORE = (
    "DELETE FROM log_entries WHERE tenant_id = :tenant AND seq >= :size",
    "DELETE FROM openings WHERE tenant_id = :tenant AND seq >= :size",
    f"UPDATE log_heads SET {MOVED} WHERE tenant_id = :tenant",
)


class Counted:
    """Counts a world's batches: those sent as one statement, and the others."""

    def __init__(self, world: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[Any] = []
        self.runs = 0
        database = world.database
        autocommit, run = database.autocommit, database.run
        assert autocommit is not None

        async def counted_autocommit(*asked: Any) -> bool:
            try:
                done = await autocommit(*asked)
            except Exception as error:
                self.statements.append(error)
                raise
            self.statements.append(done)
            return done

        async def counted_run(*asked: Any) -> Any:
            self.runs += 1
            return await run(*asked)

        monkeypatch.setattr(database, "autocommit", counted_autocommit)
        monkeypatch.setattr(database, "run", counted_run)


class Ahead:
    """Appends 16 records at once, and 40 more while their batch is in progress."""

    def __init__(self, world: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = [decision() for _ in range(56)]
        self.numbered = 0
        """Records that were numbered behind the first batch."""
        self.failure = ""
        self._world = world
        self._late: list[asyncio.Future[Appended]] = []
        autocommit = world.database.autocommit
        assert autocommit is not None
        self._autocommit = autocommit
        monkeypatch.setattr(world.database, "autocommit", self._send)
        monkeypatch.setattr(head_cache, "try_add", self._add)

    async def appended(self) -> list[Appended]:
        early = await asyncio.gather(*map(self._append, self.records[:16]))
        return [*early, *(await asyncio.gather(*self._late))]

    async def _append(self, record: Record) -> Appended:
        return await self._world.log.append(TENANT, record)

    def _add(self, chain: LogChain, record: Record, now: int) -> Appended | SluiceError:
        self.numbered += bool(self._late)
        return try_add(chain, record, now)

    async def _send(self, lane: str, statement: str, values: tuple[Any, ...]) -> bool:
        if self._late:
            return await self._autocommit(lane, statement, values)
        self._late = [asyncio.ensure_future(self._append(each)) for each in self.records[16:]]
        await turns()
        assert self.numbered == 40
        if self.failure == "conflict":
            raise DBAPIError(None, None, SerializationError())
        if self.failure == "lost before":
            raise ConnectionResetError
        done = await self._autocommit(lane, statement, values)
        if self.failure == "lost after":
            raise ConnectionResetError
        return done


async def verified(world: OpenStore, total: int, tenant_id: str = TENANT) -> None:
    answer = await verify(world.store, tenant_id)
    assert (answer["valid"], answer["total"], answer["reason"]) == (True, total, None)


async def test_a_cached_head_saves_a_reading_and_is_compared_with_the_log(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:
        counted = Counted(one, monkeypatch)
        for _ in range(3):
            for tenant_id in (TENANT, OTHER):
                await one.log.append(tenant_id, decision())
                async with one.store.reading(tenant_id) as connection:
                    rows = await connection.exec_driver_sql("SELECT tenant_id FROM log_entries")
                    assert set(rows.scalars()) == {tenant_id}
        assert (counted.runs, counted.statements) == (2, [True] * 4)
        # Another process moves the head, and both go on.
        for number in range(3, 9):
            world = (two, one)[number % 2]
            assert (await world.log.append(TENANT, decision())).seq == number
        assert counted.statements[4:] == [True, False, False]
        await asyncio.gather(*(each.log.append(TENANT, decision()) for each in (one, two) * 8))
        # A reader of the head waits for the transaction that holds it.
        late: list[asyncio.Task[Appended]] = []

        async def change(tx: Transaction) -> None:
            await tx.append(change_record("t", "x", "k", {}, record_id=event_id()))
            two.log.heads.take(TENANT)
            late.append(asyncio.create_task(two.log.append(TENANT, decision())))
            await until_async(
                "the other one waits for the lock, or wrote without it",
                lambda: sql(postgresql_url, WAITING) if not late[0].done() else True,
            )

        await one.store.write(TENANT, change)
        assert [(await each).seq for each in late] == [26]
        await verified(one, 27)
        await verified(one, 3, OTHER)


async def test_a_head_of_the_same_size_is_compared_by_its_leaf(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        await world.log.append(TENANT, decision())
        (backup,) = await world.rows(HEAD, tenant=TENANT)
        await world.log.append(TENANT, decision())
        head = dict(zip(("size", "leaf", "ts", "frontier"), backup, strict=True))
        for statement in RESTORE:
            await world.rows(statement, tenant=TENANT, **head)
        assert (await other.log.append(TENANT, decision())).seq == 1
        assert (await world.log.append(TENANT, decision())).seq == 2
        await verified(world, 3)


async def test_due_blocks_and_excess_rows_are_written_with_their_batch(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    monkeypatch.setattr("control_api.store.log.postgresql_batch.MAX_ROWS", 10)
    async with opened(postgresql_url) as world:

        async def change(tx: Transaction) -> None:
            for _ in range(25):
                await tx.append(decision())

        await world.store.write(TENANT, change)
        assert await sql(postgresql_url, "SELECT count(*) FROM openings") == [(25,)]
        for _ in range(6):
            await asyncio.gather(*(world.log.append(TENANT, decision()) for _ in range(8)))
        spool = Spool()
        for _ in range(6):
            batch = spool.records(8)
            await ingest(
                world.store, TENANT, spool.source, spool.instance, batch, heads=world.log.heads
            )
        await verified(world, 121)


async def test_a_statement_that_is_lost_loses_and_duplicates_nothing(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as world:
        await world.log.append(TENANT, decision())
        autocommit, cuts = world.database.autocommit, ["before", "", "after"]
        assert autocommit is not None

        async def lossy(*asked: Any) -> bool:
            cut = cuts.pop() if cuts else ""
            if cut == "before":
                raise ConnectionResetError
            done = await autocommit(*asked)
            if cut == "after":
                raise ConnectionResetError
            return done

        monkeypatch.setattr(world.database, "autocommit", lossy)
        placed: list[Appended] = []
        for _ in range(3):
            records = [decision() for _ in range(6)]
            answers = (world.log.append(TENANT, record) for record in records)
            placed += await asyncio.gather(*answers)
        assert not cuts
        rows = await world.rows("SELECT eid, seq FROM log_entries WHERE seq > 0 ORDER BY seq")
        assert [(each.eid, each.seq) for each in placed] == [(eid, seq) for eid, seq in rows]
        # Records that were numbered behind such a batch are numbered again.
        ahead = Ahead(world, monkeypatch)
        ahead.failure = "lost before"
        assert [each.seq for each in await ahead.appended()] == list(range(19, 75))
        assert ahead.numbered > 40
        await verified(world, 75)


@pytest.mark.deep(stands_in="test_a_cached_head_saves_a_reading_and_is_compared_with_the_log")
async def test_a_batch_with_a_cached_head_is_one_statement(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as world:
        counted = Counted(world, monkeypatch)
        for tenant_id in (TENANT, OTHER):
            for _ in range(5):
                await world.log.append(tenant_id, decision())
        assert (counted.runs, counted.statements) == (2, [True] * 8)
        for tenant_id in (TENANT, OTHER):
            await verified(world, 5, tenant_id)


@pytest.mark.deep(stands_in="test_due_blocks_and_excess_rows_are_written_with_their_batch")
async def test_due_index_blocks_are_written_with_the_batch(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several blocks of several facets; verification compares the index with the entries."""
    async with opened(postgresql_url) as world:
        counted = Counted(world, monkeypatch)
        for _ in range(60):
            await asyncio.gather(*(world.log.append(TENANT, decision()) for _ in range(100)))
        assert 9 < counted.runs < 30
        assert len(counted.statements) > 30
        await verified(world, 6000)


@pytest.mark.deep(stands_in="test_a_cached_head_saves_a_reading_and_is_compared_with_the_log")
async def test_a_head_moved_by_another_process_is_read_again(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:
        counted = Counted(one, monkeypatch)
        for number in range(8):
            world = (one, two)[number % 2]
            assert (await world.log.append(TENANT, decision())).seq == number
        assert counted.statements == [False] * 3
        await verified(one, 8)


async def test_a_change_in_between_is_not_overwritten(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world:

        async def change(tx: Transaction) -> None:
            await tx.append(change_record("t", "x", "k", {}, record_id=event_id()))

        for _ in range(3):
            await world.log.append(TENANT, decision())
            await world.store.write(TENANT, change)
        await verified(world, 6)


@pytest.mark.deep(stands_in="test_due_blocks_and_excess_rows_are_written_with_their_batch")
async def test_a_change_may_have_more_records_than_a_statement_takes(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_api.store.log.postgresql_batch.MAX_ROWS", 100)
    async with opened(postgresql_url) as world:

        async def change(tx: Transaction) -> None:
            for _ in range(1050):
                await tx.append(decision())

        await world.store.write(TENANT, change)
        await verified(world, 1050)
        assert await sql(postgresql_url, "SELECT count(*) FROM openings") == [(1050,)]


@pytest.mark.deep(stands_in="test_a_head_of_the_same_size_is_compared_by_its_leaf")
async def test_a_head_of_the_same_size_with_another_leaf_is_read_again(
    postgresql_url: str,
) -> None:
    """A database that was restored from a backup and has grown to the same size since."""
    async with opened(postgresql_url) as world:
        for _ in range(2):
            await world.log.append(TENANT, decision())
        (backup,) = await world.rows(HEAD, tenant=TENANT)
        await world.log.append(TENANT, decision())
        head = dict(zip(("size", "leaf", "ts", "frontier"), backup, strict=True))
        for statement in RESTORE:
            await world.rows(statement, tenant=TENANT, **head)
        async with opened(postgresql_url) as other:
            assert (await other.log.append(TENANT, decision())).seq == 2
        assert (await world.log.append(TENANT, decision())).seq == 3
        await verified(world, 4)


async def test_records_are_numbered_while_the_batch_before_is_committed(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as world:
        await world.log.append(TENANT, decision())
        counted, ahead = Counted(world, monkeypatch), Ahead(world, monkeypatch)
        answers = await ahead.appended()
        assert [each.seq for each in answers] == list(range(1, 57))
        assert ahead.numbered == 40  # none of them twice
        assert (counted.runs, counted.statements) == (0, [True, True])
        await verified(world, 57)


@pytest.mark.deep(stands_in="test_a_statement_that_is_lost_loses_and_duplicates_nothing")
@pytest.mark.parametrize(
    "failure", ["head moved", "conflict", "lost before", "lost after", "id known"]
)
async def test_records_numbered_behind_a_failed_batch_are_numbered_again(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        known, others = decision(), 1
        first = await world.log.append(TENANT, known)
        ahead = Ahead(world, monkeypatch)
        ahead.failure = failure
        if failure == "head moved":
            await other.log.append(TENANT, decision())
            others = 2
        elif failure == "id known":
            ahead.records[5] = known
        answers = await ahead.appended()
        assert ahead.numbered > 40
        if failure == "id known":
            assert answers.pop(5) == first
        rows = await world.rows("SELECT eid, seq, hash FROM log_entries")
        stored = {(row.eid, row.seq, bytes(row.hash)) for row in rows}
        assert len(stored) == others + len(answers)
        assert {(each.eid, each.seq, each.leaf_hash) for each in answers} <= stored
        await verified(world, len(stored))


@pytest.mark.deep(stands_in="test_a_cached_head_saves_a_reading_and_is_compared_with_the_log")
async def test_two_processes_with_full_queues_write_one_log(postgresql_url: str) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:

        async def appending(world: OpenStore) -> list[int]:
            return [(await world.log.append(TENANT, decision())).seq for _ in range(10)]

        seqs = await asyncio.gather(*(appending(each) for each in (one, two) for _ in range(64)))
        assert sorted(seq for each in seqs for seq in each) == list(range(1280))
        await verified(one, 1280)


async def test_a_known_id_answers_with_its_first_position(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as world:
        record = decision()
        first = await world.log.append(TENANT, record)
        counted = Counted(world, monkeypatch)
        both = await asyncio.gather(
            world.log.append(TENANT, record), world.log.append(TENANT, decision())
        )
        assert both[0] == first
        assert both[1].seq == 1
        assert counted.statements
        await verified(world, 2)


@pytest.mark.deep(stands_in="test_a_statement_that_is_lost_loses_and_duplicates_nothing")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_connection_loses_and_duplicates_nothing(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Lost before the statement, or after its commit and before its answer."""
    async with opened(postgresql_url) as world:
        await world.log.append(TENANT, decision())
        autocommit, cut = world.database.autocommit, [1]
        assert autocommit is not None

        async def lossy(*asked: Any) -> bool:
            lost = cut.pop() if cut else 0
            if lost and when == "before":
                raise ConnectionResetError
            done = await autocommit(*asked)
            if lost:
                raise ConnectionResetError
            return done

        monkeypatch.setattr(world.database, "autocommit", lossy)
        records = [decision() for _ in range(16)]
        placed = await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
        assert [place.eid for place in placed] == [record.eid for record in records]
        assert sorted(place.seq for place in placed) == list(range(1, 17))
        await verified(world, 17)


@pytest.mark.deep(stands_in="test_a_statement_that_is_lost_loses_and_duplicates_nothing")
async def test_a_backend_killed_during_the_statement_loses_nothing(
    postgresql_url: str,
) -> None:
    async with opened(postgresql_url) as world:
        await world.log.append(TENANT, decision())

        async def ending() -> None:
            for _ in range(10):
                query = (
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name = 'sluice'"
                )
                await sql(postgresql_url, query)
                await asyncio.sleep(0.03)

        ended = asyncio.ensure_future(ending())
        answered = []
        while not ended.done():
            records = [decision() for _ in range(20)]
            answers = await asyncio.gather(
                *(world.log.append(TENANT, record) for record in records), return_exceptions=True
            )
            answered += [each for each in answers if not isinstance(each, BaseException)]
        held = await sql(postgresql_url, "SELECT seq, eid FROM log_entries")
        assert {(each.seq, each.eid) for each in answered} <= {(seq, eid) for seq, eid in held}
        assert len({eid for _, eid in held}) == len(held)
        await verified(world, len(held))


@pytest.mark.deep(stands_in="test_a_cached_head_saves_a_reading_and_is_compared_with_the_log")
async def test_a_connection_used_for_one_tenant_serves_another(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world:
        for _ in range(4):
            for tenant_id in (TENANT, OTHER):
                await world.log.append(tenant_id, decision())
                async with world.store.reading(tenant_id) as connection:
                    rows = await connection.exec_driver_sql("SELECT tenant_id FROM log_entries")
                    assert set(rows.scalars()) == {tenant_id}
        for tenant_id in (TENANT, OTHER):
            await verified(world, 4, tenant_id)
