"""Writes are atomic, ordered and completed; listeners hear of them in order."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from control_api.log.verify import verify
from control_api.store.errors import ReadFault, WriteFault
from control_api.store.queries import documents
from control_api.store.schema.tables import policy_versions, tenants
from control_api.store.store import Store
from control_api.store.transaction import Published, Transaction
from policies.ground.errors import Conflict, NotFound
from policies.sets.policy_set import document_digest
from policies.trail.change import change_record
from tests.support.open_store import OTHER, TENANT, OpenStore, decision, event_id, opened

RENAME = text("UPDATE tenants SET name = 'x'")
Heard = tuple[str, int, dict[str, bytes | None]]


def listen(store: Store) -> list[Heard]:
    heard: list[Heard] = []

    def note(tenant_id: str, published: Published) -> None:
        heard.append((tenant_id, published.revision, published.documents))

    store.on_published(note)
    return heard


async def publish(store: Store, changed: dict[str, bytes | None], tenant_id: str = TENANT) -> int:
    return await store.write(tenant_id, lambda tx: tx.publish(changed))


@pytest.mark.deep(stands_in="test_an_unchanged_document_is_not_published_again")
async def test_published_documents_are_read_back(world: OpenStore) -> None:
    heard = listen(world.store)
    assert await publish(world.store, {"role/a": b"[1]", "role/b": b"[2]"}) == 2
    assert heard == [(TENANT, 2, {"role/a": b"[1]", "role/b": b"[2]"})]
    async with world.store.reading(TENANT) as connection:
        loaded = await documents.load(connection, TENANT)
        page = await documents.since(connection, TENANT, 0, limit=10, max_bytes=1000)
    assert loaded == (2, {"role/a": b"[1]", "role/b": b"[2]"})
    assert [(document.name, document.revision) for document in page.documents] == [
        ("role/a", 1),
        ("role/b", 2),
    ]
    assert page.documents[0].digest == document_digest(b"[1]")
    assert not page.more


async def test_an_unchanged_document_is_not_published_again(world: OpenStore) -> None:
    await publish(world.store, {"role/a": b"[1]", "role/b": b"[2]"})
    heard = listen(world.store)
    assert await publish(world.store, {"role/a": b"[1]", "role/c": None}) == 2
    assert heard == []
    assert await publish(world.store, {"role/a": b"[1]", "role/b": b"[3]"}) == 3
    assert heard == [(TENANT, 3, {"role/b": b"[3]"})]
    async with world.store.reading(TENANT) as connection:
        page = await documents.since(connection, TENANT, 0, limit=10, max_bytes=1000)
        loaded = await documents.load(connection, TENANT)
    assert loaded == (3, {"role/a": b"[1]", "role/b": b"[3]"})
    assert not page.more
    assert [(each.name, each.revision, each.digest) for each in page.documents] == [
        ("role/a", 1, document_digest(b"[1]")),
        ("role/b", 3, document_digest(b"[3]")),
    ]
    for _ in range(2):  # a removed one stays without a body
        assert await publish(world.store, {"role/a": None}) == 4
    async with world.store.reading(TENANT) as connection:
        page = await documents.since(connection, TENANT, 3, limit=10, max_bytes=1000)
        assert await documents.load(connection, TENANT) == (4, {"role/b": b"[3]"})
    assert page.documents == [documents.StoredDocument("role/a", 4, None, None)]
    assert await publish(world.store, {"role/a": b"[1]"}) == 5


@pytest.mark.deep(stands_in="test_an_unchanged_document_is_not_published_again")
async def test_a_removed_document_stays_without_a_body(world: OpenStore) -> None:
    await publish(world.store, {"role/a": b"[1]"})
    assert await publish(world.store, {"role/a": None}) == 2
    assert await publish(world.store, {"role/a": None}) == 2
    async with world.store.reading(TENANT) as connection:
        page = await documents.since(connection, TENANT, 0, limit=10, max_bytes=1000)
        assert await documents.load(connection, TENANT) == (2, {})
    assert page.documents == [documents.StoredDocument("role/a", 2, None, None)]
    assert await publish(world.store, {"role/a": b"[1]"}) == 3


@pytest.mark.deep(stands_in="test_all_of_a_transaction_is_committed_and_announced_or_nothing_is")
async def test_publishing_twice_in_one_transaction_is_announced_once(world: OpenStore) -> None:
    heard = listen(world.store)

    async def twice(tx: Transaction) -> int:
        await tx.publish({"a": b"1", "b": b"1"})
        return await tx.publish({"b": b"2", "c": b"2"})

    assert await world.store.write(TENANT, twice) == 4
    assert heard == [(TENANT, 4, {"a": b"1", "b": b"2", "c": b"2"})]


@pytest.mark.deep(stands_in="test_two_replicas_keep_one_order")
async def test_revisions_have_no_gap_and_listeners_get_them_in_order(world: OpenStore) -> None:
    heard = listen(world.store)
    await asyncio.gather(
        *(
            publish(world.store, {f"role/{n}": b"%d" % n}, t)
            for n in range(40)
            for t in (TENANT, OTHER)
        )
    )
    for tenant_id in (TENANT, OTHER):
        assert [revision for t, revision, _ in heard if t == tenant_id] == list(range(1, 41))


@pytest.mark.deep(stands_in="test_all_of_a_transaction_is_committed_and_announced_or_nothing_is")
async def test_an_error_rolls_everything_back(world: OpenStore) -> None:
    heard = listen(world.store)

    async def failing(tx: Transaction) -> None:
        await tx.connection.execute(tenants.update().values(name="changed"))
        await tx.append(change_record("t", "x", "system", {}, record_id=event_id()))
        await tx.publish({"role/a": b"[1]"})
        raise Conflict("no")

    with pytest.raises(Conflict):
        await world.store.write(TENANT, failing)
    assert heard == []
    async with world.store.reading(TENANT) as connection:
        assert await documents.load(connection, TENANT) == (0, {})
    async with world.store.reading_all_tenants() as connection:
        names = set((await connection.execute(select(tenants.c.name))).scalars())
    assert names == {TENANT, OTHER}
    assert (await verify(world.store, TENANT))["total"] == 0


@pytest.mark.deep(stands_in="test_all_of_a_transaction_is_committed_and_announced_or_nothing_is")
async def test_a_record_and_its_rows_are_committed_together(world: OpenStore) -> None:
    async def change(tx: Transaction) -> None:
        await tx.connection.execute(
            tenants.update().where(tenants.c.tenant_id == TENANT).values(name="renamed")
        )
        first = await tx.append(change_record("t", "x", "k", {}, record_id=event_id()))
        assert first.seq == 0
        again = await tx.append(change_record("t", "y", "k", {}, record_id=event_id()))
        assert again.seq == 1

    await world.store.write(TENANT, change)
    answer = await verify(world.store, TENANT)
    assert (answer["valid"], answer["total"], answer["events"]) == (True, 2, 0)


async def test_all_of_a_transaction_is_committed_and_announced_or_nothing_is(
    world: OpenStore,
) -> None:
    heard, placed = listen(world.store), list[int]()

    async def change(tx: Transaction, name: str = "renamed") -> int:
        await tx.connection.execute(
            tenants.update().where(tenants.c.tenant_id == TENANT).values(name=name)
        )
        for kind in ("x", "y"):
            record = change_record("t", kind, "k", {}, record_id=event_id())
            placed.append((await tx.append(record)).seq)
        await tx.publish({"a": name.encode(), "b": b"1"})
        return await tx.publish({"b": name.encode()})

    async def failing(tx: Transaction) -> None:
        await change(tx, "changed")
        raise Conflict("no")

    assert await world.store.write(TENANT, change) == 3
    with pytest.raises(Conflict):
        await world.store.write(TENANT, failing)
    assert heard == [(TENANT, 3, {"a": b"renamed", "b": b"renamed"})]
    assert placed == [0, 1, 2, 3]
    async with world.store.reading(TENANT) as connection:
        loaded = await documents.load(connection, TENANT)
        name = (await connection.execute(select(tenants.c.name))).scalars().first()
    assert loaded == (3, {"a": b"renamed", "b": b"renamed"})
    assert name == "renamed"
    answer = await verify(world.store, TENANT)
    assert (answer["valid"], answer["total"]) == (True, 2)


async def test_a_cancelled_write_is_still_committed(world: OpenStore) -> None:
    heard = listen(world.store)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(tx: Transaction) -> None:
        await tx.publish({"role/a": b"[1]"})
        begun.set()
        await go_on.wait()

    caller = asyncio.ensure_future(world.store.write(TENANT, slow))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    assert await publish(world.store, {"role/b": b"[1]"}) == 2
    assert [revision for _, revision, _ in heard] == [1, 2]


async def test_writes_of_a_tenant_follow_each_other(world: OpenStore) -> None:
    inside = 0

    async def alone(tx: Transaction) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0.001)
        inside -= 1

    await asyncio.gather(*(world.store.write(TENANT, alone) for _ in range(20)))


async def test_an_unknown_tenant_publishes_and_records_nothing(world: OpenStore) -> None:
    with pytest.raises(NotFound):
        await publish(world.store, {"role/a": b"1"}, "ten_none")
    record = change_record("t", "x", "k", {}, record_id=event_id())
    with pytest.raises(NotFound):
        await world.store.write("ten_none", lambda tx: tx.append(record))


async def test_a_bug_is_not_reported_as_a_fault(world: OpenStore) -> None:
    async def nonsense(tx: Transaction) -> None:
        await tx.connection.execute(text("SELECT nothing FROM nowhere"))

    with pytest.raises(DBAPIError):
        await world.store.write(TENANT, nonsense)
    assert await publish(world.store, {"role/a": b"1"}) == 1


async def test_a_foreign_key_holds(world: OpenStore) -> None:
    row = {"tenant_id": TENANT, "policy_id": "pol_none", "version": 1, "body": b"{}"}

    async def orphan(tx: Transaction) -> None:
        values = {**row, "changed_by": "x", "changed_at": 0, "change": "created"}
        await tx.connection.execute(insert(policy_versions).values(values))

    with pytest.raises(IntegrityError):
        await world.store.write(TENANT, orphan)


async def test_a_lost_connection_is_a_fault_and_the_next_write_succeeds(
    postgresql_url: str,
) -> None:
    async with opened(postgresql_url) as world:

        async def dying(tx: Transaction) -> None:
            await tx.publish({"role/a": b"1"})
            await tx.connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

        heard = listen(world.store)
        with pytest.raises(WriteFault):
            await world.store.write(TENANT, dying)
        assert heard == []
        assert await publish(world.store, {"role/a": b"1"}) == 1
        with pytest.raises(ReadFault):
            await _die_reading(world.store)
        async with world.store.reading(TENANT) as connection:
            assert (await connection.execute(text("SELECT 1"))).scalar() == 1


@pytest.mark.deep(stands_in="test_a_reader_cannot_write")
async def test_a_reading_transaction_sees_committed_rows_and_cannot_write(world: OpenStore) -> None:
    def names(connection: Connection) -> list[str]:
        return list(connection.execute(select(tenants.c.name)).scalars())

    def rename(connection: Connection) -> None:
        connection.execute(text("UPDATE tenants SET name = 'x' WHERE tenant_id = 'default'"))

    before = await world.store.run_reading(TENANT, names)
    assert before
    with pytest.raises(ReadFault):
        await world.store.run_reading(TENANT, rename)
    # Its connection goes back, however the work ends.
    for _ in range(20):
        assert await world.store.run_reading(TENANT, names) == before


@pytest.mark.deep(stands_in="test_a_lost_connection_is_a_fault_and_the_next_write_succeeds")
async def test_a_reader_that_loses_its_connection_gets_a_read_fault(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world:
        with pytest.raises(ReadFault):
            await _die_reading(world.store)
        async with world.store.reading(TENANT) as connection:
            assert (await connection.execute(text("SELECT 1"))).scalar() == 1


async def _die_reading(store: Store) -> None:
    async with store.reading(TENANT) as connection:
        await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


async def test_a_reader_cannot_write(world: OpenStore) -> None:
    for _ in range(20):  # its connection goes back each time
        with pytest.raises(ReadFault):
            await world.store.run_reading(TENANT, lambda connection: connection.execute(RENAME))
    with pytest.raises(ReadFault):
        async with world.store.reading(TENANT) as reader:
            await reader.execute(RENAME)
    async with world.store.reading(TENANT) as reader:
        assert "x" not in (await reader.execute(select(tenants.c.name))).scalars().all()


async def test_statements_on_postgresql_have_limits(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world, world.store.reading(TENANT) as connection:
        for name, limit in (("statement_timeout", "10s"), ("lock_timeout", "8s")):
            assert (await connection.execute(text(f"SHOW {name}"))).scalar() == limit

        async def limits(tx: Transaction) -> list[object]:
            shown: list[object] = []
            for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
                shown.append((await tx.connection.execute(text(f"SHOW {name}"))).scalar())
            return shown

        assert await world.store.write(TENANT, limits) == ["8s", "5s"]


async def test_two_replicas_keep_one_order(postgresql_url: str) -> None:
    """Within a process a lock orders the writes; between two stores, locked rows do."""
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:

        async def change(tx: Transaction) -> None:
            record = change_record("t", "x", "k", {}, record_id=event_id())
            await tx.append(record)
            await tx.publish({f"role/{record.eid}": b"1"})

        def both(connection: Connection, again: bool) -> None:
            assert not again

        heard = listen(one.store)
        await asyncio.gather(
            *(world.store.write(TENANT, change) for _ in range(20) for world in (one, two)),
            *(world.store.run(TENANT, both) for world in (one, two)),
        )
        answer = await verify(one.store, TENANT)
        assert (answer["valid"], answer["total"]) == (True, 40)
        async with two.store.reading(TENANT) as connection:
            assert await documents.current(connection, TENANT) == 40
        assert [revision for _, revision, _ in heard] == sorted({each[1] for each in heard})
        assert len(heard) == 20
        await asyncio.gather(
            *(world.log.append(TENANT, decision()) for _ in range(20) for world in (one, two))
        )
        answer = await verify(one.store, TENANT)
        assert (answer["valid"], answer["total"]) == (True, 80)
