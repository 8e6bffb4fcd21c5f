"""Records are numbered without gaps, appended exactly once, and durable before the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection

from control_api.log.ingest import ingest
from control_api.log.verify import verify
from control_api.store.errors import WriteFault
from control_api.store.group_commit import MAX_BATCH
from control_api.store.transaction import Transaction
from policies.ground.errors import Invalid, NotFound
from policies.trail.change import change_record
from policies.trail.record import MAX_ENTRY, Record
from tests.control_api.log.lost_answers import lose_first_answer
from tests.support.open_store import (
    OTHER,
    TENANT,
    OpenStore,
    Spool,
    decision,
    event_id,
    opened,
)


async def stored(world: OpenStore, tenant_id: str = TENANT) -> list[tuple[int, str]]:
    query = "SELECT seq, eid FROM log_entries WHERE tenant_id = :tenant ORDER BY seq"
    return [(row.seq, row.eid) for row in await world.rows(query, tenant=tenant_id)]


async def test_a_tenant_s_records_follow_each_other_once_each_and_in_time(
    world: OpenStore,
) -> None:
    record = decision()
    first = await world.log.append(TENANT, record)
    assert await stored(world) == [(0, first.eid)]
    # An hour back, with records of another tenant in the same batch, and one id known already.
    world.now.ahead = -3_600_000_000
    again, second, other, theirs = await asyncio.gather(
        world.log.append(TENANT, record),
        world.log.append(TENANT, decision()),
        world.log.append(OTHER, record),
        world.log.append(OTHER, decision()),
    )
    assert again == first
    assert (second.seq, second.ts) == (1, first.ts)
    assert await stored(world) == [(0, first.eid), (1, second.eid)]
    assert await stored(world, OTHER) == [(0, record.eid), (1, theirs.eid)]
    for tenant_id, last in ((TENANT, second), (OTHER, theirs)):
        answer = await verify(world.store, tenant_id)
        assert (answer["valid"], answer["total"]) == (True, 2), answer
        assert answer["head_hash"] == last.leaf_hash.hex()
    assert other.seq == 0


async def test_no_caller_s_record_is_lost_or_appended_twice(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers that leave, a commit whose answer is lost, and more callers than a batch takes."""
    lose_first_answer(world, monkeypatch)
    left = decision()
    caller = asyncio.ensure_future(world.log.append(TENANT, left))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    records: list[Record] = [decision() for _ in range(MAX_BATCH + 8)]
    placed = await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
    assert sorted(place.seq for place in placed) == list(range(1, MAX_BATCH + 9))
    assert [place.eid for place in placed] == [record.eid for record in records]
    found = await stored(world)
    assert sorted(eid for _, eid in found) == sorted([left.eid, *(each.eid for each in records)])


async def test_management_and_sidecars_write_between_decisions(world: OpenStore) -> None:
    """Each moves the log's end that the others have in mind."""
    spool, written = Spool(source="a"), list[str]()

    async def change(tx: Transaction) -> None:
        record = change_record("t", "x", "system", {}, record_id=event_id())
        written.append((await tx.append(record)).eid)
        await tx.publish({"role/r": record.eid.encode()})

    for _ in range(2):
        batch = spool.records(3)
        records = [decision() for _ in range(8)]
        await asyncio.gather(
            *(world.log.append(TENANT, record) for record in records),
            world.store.write(TENANT, change),
            ingest(world.store, TENANT, "a", "i1", batch, heads=world.log.heads),
        )
        written += [payload["core"]["eid"] for payload in batch]
        written += [record.eid for record in records]
    found = await stored(world)
    assert [seq for seq, _ in found] == list(range(24))
    assert sorted(eid for _, eid in found) == sorted(written)
    assert (await verify(world.store, TENANT))["valid"]


@pytest.mark.deep(stands_in="test_a_tenant_s_records_follow_each_other_once_each_and_in_time")
async def test_records_follow_each_other(world: OpenStore) -> None:
    first = await world.log.append(TENANT, decision())
    second = await world.log.append(TENANT, decision())
    assert (first.seq, second.seq) == (0, 1)
    assert second.ts >= first.ts
    assert await stored(world) == [(0, first.eid), (1, second.eid)]
    assert (await verify(world.store, TENANT))["head_hash"] == second.leaf_hash.hex()


@pytest.mark.deep(stands_in="test_management_and_sidecars_write_between_decisions")
async def test_concurrent_writers_make_one_gapless_chain(world: OpenStore) -> None:
    """64 appenders, management writes that append and publish, and two sidecars."""
    written: list[str] = []

    async def appender() -> None:
        for _ in range(8):
            record = decision()
            written.append((await world.log.append(TENANT, record)).eid)

    async def manager(number: int) -> None:
        async def change(tx: Transaction) -> None:
            detail = {"number": number}
            record = change_record("t", "x", "system", detail, record_id=event_id())
            written.append((await tx.append(record)).eid)
            await tx.publish({f"role/{number}": b"[%d]" % number})

        for _ in range(4):
            await world.store.write(TENANT, change)

    async def sidecar(name: str) -> None:
        spool = Spool(source=name)
        for _ in range(4):
            batch = spool.records(10)
            await ingest(world.store, TENANT, name, "i1", batch)
            written.extend(payload["core"]["eid"] for payload in batch)

    await asyncio.gather(
        *(appender() for _ in range(64)),
        *(manager(number) for number in range(4)),
        *(sidecar(name) for name in ("a", "b")),
    )
    found = await stored(world)
    assert [seq for seq, _ in found] == list(range(64 * 8 + 16 + 80))
    assert sorted(eid for _, eid in found) == sorted(written)
    answer = await verify(world.store, TENANT)
    assert answer["valid"], answer


@pytest.mark.deep(stands_in="test_a_tenant_s_records_follow_each_other_once_each_and_in_time")
async def test_each_tenant_has_its_own_log(world: OpenStore) -> None:
    await asyncio.gather(*(world.log.append(t, decision()) for t in (TENANT, OTHER) * 5))
    for tenant_id in (TENANT, OTHER):
        answer = await verify(world.store, tenant_id)
        assert (answer["valid"], answer["total"]) == (True, 5)


async def test_an_unknown_tenant_fails_only_its_own_callers(world: OpenStore) -> None:
    mine, theirs = await asyncio.gather(
        world.log.append(TENANT, decision()),
        world.log.append("ten_none", decision()),
        return_exceptions=True,
    )
    assert not isinstance(mine, BaseException)
    assert isinstance(theirs, NotFound)


@pytest.mark.deep(stands_in="test_a_tenant_s_records_follow_each_other_once_each_and_in_time")
async def test_a_known_id_answers_with_its_first_position(world: OpenStore) -> None:
    record = decision()
    first = await world.log.append(TENANT, record)
    await world.log.append(TENANT, decision())
    again, other = await asyncio.gather(
        world.log.append(TENANT, record), world.log.append(TENANT, decision())
    )
    assert again == first
    assert other.seq == 2
    assert len(await stored(world)) == 3


async def test_an_id_twice_in_one_batch_has_one_position(world: OpenStore) -> None:
    record = decision()
    one, two = await asyncio.gather(*(world.log.append(TENANT, record) for _ in range(2)))
    assert one == two
    assert len(await stored(world)) == 1


@pytest.mark.deep(stands_in="test_a_tenant_s_records_follow_each_other_once_each_and_in_time")
async def test_two_tenants_can_use_the_same_id(world: OpenStore) -> None:
    record = decision()
    await world.log.append(TENANT, record)
    assert (await world.log.append(OTHER, record)).seq == 0


@pytest.mark.deep(stands_in="test_no_caller_s_record_is_lost_or_appended_twice")
async def test_a_cancelled_callers_record_is_still_appended(world: OpenStore) -> None:
    record = decision()
    caller = asyncio.ensure_future(world.log.append(TENANT, record))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await world.log.append(TENANT, decision())
    assert record.eid in {eid for _, eid in await stored(world)}


async def test_a_record_too_large_fails_only_its_own_caller(world: OpenStore) -> None:
    good = decision()
    large = good._replace(eid=event_id(), pub=b'{"reason":"%b"}' % (b"x" * MAX_ENTRY))
    answers = await asyncio.gather(
        world.log.append(TENANT, large), world.log.append(TENANT, good), return_exceptions=True
    )
    assert isinstance(answers[0], Invalid)
    assert await stored(world) == [(0, good.eid)]


@pytest.mark.deep(stands_in="test_a_tenant_s_records_follow_each_other_once_each_and_in_time")
async def test_time_never_runs_backwards_in_a_log(world: OpenStore) -> None:
    first = await world.log.append(TENANT, decision())
    world.now.ahead = -3_600_000_000
    second = await world.log.append(TENANT, decision())
    assert second.ts == first.ts
    assert (await verify(world.store, TENANT))["valid"]


async def test_a_full_disk_fails_every_caller_and_stores_nothing(sqlite_url: str) -> None:
    async with opened(sqlite_url) as world:
        await world.log.append(TENANT, decision())
        await world.store.run("", _no_more_pages)
        callers = (world.log.append(TENANT, decision(query="x" * 8000)) for _ in range(64))
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert all(isinstance(answer, WriteFault) for answer in answers)
        assert len(await stored(world)) == 1
        await world.store.run("", lambda connection, _: _pages(connection, 1_000_000))
        assert (await world.log.append(TENANT, decision())).seq == 1
        assert (await verify(world.store, TENANT))["valid"]


def _no_more_pages(connection: Connection, again: bool) -> None:
    _pages(connection, connection.exec_driver_sql("PRAGMA page_count").scalar_one() + 4)


def _pages(connection: Connection, most: int) -> None:
    connection.exec_driver_sql(f"PRAGMA max_page_count={most}")


async def test_a_connection_lost_during_a_batch_loses_and_duplicates_nothing(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes the connection during a batch: the batch is retried, whole."""
    async with opened(postgresql_url) as world:
        ended = 0
        run: Any = world.database.run

        async def dying(lane: str, work: Any) -> Any:
            def cut(connection: Connection) -> Any:
                nonlocal ended
                result = work(connection)
                if ended < 1:
                    ended += 1
                    connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
                return result

            return await run(lane, cut)

        monkeypatch.setattr(world.database, "run", dying)
        records = [decision() for _ in range(32)]
        placed = await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
        assert ended == 1
        assert sorted(place.seq for place in placed) == list(range(32))
        assert len(await stored(world)) == 32


@pytest.mark.deep(stands_in="test_no_caller_s_record_is_lost_or_appended_twice")
async def test_a_commit_whose_answer_is_lost_is_not_repeated(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is committed, but the answer is lost."""
    lose_first_answer(world, monkeypatch)
    records = [decision() for _ in range(16)]
    placed = await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
    assert [place.eid for place in placed] == [record.eid for record in records]
    assert sorted(place.seq for place in placed) == list(range(16))
    assert len(await stored(world)) == 16


async def test_a_lasting_fault_fails_every_caller(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(lane: str, work: object) -> object:
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(world.database, "run", away)
        callers = (world.log.append(TENANT, decision()) for _ in range(8))
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(answer) for answer in answers] == [WriteFault] * 8
    assert (await world.log.append(TENANT, decision())).seq == 0


@pytest.mark.deep(stands_in="test_no_caller_s_record_is_lost_or_appended_twice")
async def test_more_than_one_batch_can_wait(world: OpenStore) -> None:
    records: list[Record] = [decision() for _ in range(1100)]
    placed = await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
    assert sorted(place.seq for place in placed) == list(range(1100))


async def test_appended_records_survive_a_restart(either_url: str) -> None:
    async with opened(either_url) as world:
        await asyncio.gather(*(world.log.append(TENANT, decision()) for _ in range(20)))
    async with opened(either_url) as world:
        assert (await world.log.append(TENANT, decision())).seq == 20
        assert (await verify(world.store, TENANT))["valid"]


async def test_a_stopping_store_refuses_appends(sqlite_url: str) -> None:
    async with opened(sqlite_url) as world:
        log = world.log
    with pytest.raises(WriteFault):
        await log.append(TENANT, decision())
