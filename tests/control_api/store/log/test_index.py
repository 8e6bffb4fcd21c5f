"""The index covers what follows from the log's size, in whatever steps the log grew."""

from __future__ import annotations

import asyncio
import random

import pytest

from control_api.log.erasure import Erasure, ErasureRequest
from control_api.log.search import EventFilters, search
from control_api.log.verify import verify
from control_api.store.log import index as log_index
from control_api.store.log.index import (
    BLOCK,
    FACETS,
    SPAN,
    block_end,
    indexed_size,
    removal_of_range,
    remove_entries,
)
from control_api.store.migrate import migrate
from control_api.store.queries.redactions import ErasureTarget
from control_api.store.schema.version import READABLE_SINCE
from control_api.store.transaction import Transaction
from tests.support import postgres
from tests.support.open_store import TENANT, OpenStore, decision, event_id, opened, sql


def test_the_indexed_size_only_grows_and_is_never_far_behind() -> None:
    for place in range(SPAN + 1):
        before = 0
        for size in range(3 * BLOCK):
            now = indexed_size(place, size)
            assert before <= now <= size
            assert size - now < BLOCK
            if now != before:
                assert now == size
                assert block_end(place, before) == now
            before = now


def test_no_size_ends_two_blocks() -> None:
    """No transaction has to write every block."""
    for size in range(1, 2 * BLOCK):
        due = [place for place in range(SPAN + 1) if indexed_size(place, size) == size]
        assert len(due) <= 1


async def test_the_index_matches_what_is_appended_and_removed(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "BLOCK", 16)
    monkeypatch.setattr(log_index, "STEP", 2)
    users = ["fg"[number % 3 == 0] for number in range(40)]

    async def work(tx: Transaction) -> None:
        for user in users[1:]:
            await tx.append(decision(user_id=user))

    await world.log.append(TENANT, decision(user_id=users[0]))
    await world.store.write(TENANT, work)
    found = await named(world)
    of_user = {(6, user, seq) for seq, user in enumerate(users) if seq < indexed_size(6, 40)}
    of_role = {(0, "support", seq) for seq in range(indexed_size(0, 40))}
    assert {each for each in found if each[0] in (0, 6)} == of_user | of_role
    assert len(found) == len(set(found))
    if world.url.startswith("postgresql"):  # which names several entries in a row
        assert await world.rows("SELECT 1 FROM log_index WHERE more IS NOT NULL LIMIT 1")
    spans = await world.rows("SELECT seq, until_seq FROM log_spans ORDER BY seq")
    assert [row.seq for row in spans[1:]] == [row.until_seq for row in spans[:-1]]
    assert spans[-1].until_seq == indexed_size(SPAN, 40)
    assert {row.until_seq - row.seq for row in spans[1:]} == {16}
    erased = [seq for _, user, seq in of_user if user == "f" and seq % 2]

    async def remove(tx: Transaction) -> None:
        await remove_entries(tx.connection, TENANT, "user_id", "f", erased)
        removal = removal_of_range(tx.connection.dialect)
        await tx.connection.exec_driver_sql(removal, (TENANT, 0, "support", 3, 12))

    await world.store.write(TENANT, remove)
    gone = {(6, "f", seq) for seq in erased} | {(0, "support", seq) for seq in range(3, 13)}
    after = await named(world)
    assert set(after) == set(found) - gone
    assert len(after) == len(set(after))


@pytest.mark.deep(stands_in="test_the_index_matches_what_is_appended_and_removed")
@pytest.mark.parametrize("seed", range(3))
async def test_the_index_holds_exactly_the_entries_below_its_size(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    chance, size = random.Random(seed), 0
    for _ in range(8):
        many = chance.choice([1, 3, 33, 70])
        records = [
            decision(
                agent_role=chance.choice("ab"),
                agent_id=chance.choice([None, "c"]),
                session_id=chance.choice([None, "d", "e"]),
                user_id=chance.choice("fg"),
            )
            for _ in range(many)
        ]
        await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
        size += many
    entries = await world.rows(
        "SELECT e.*, o.user_id FROM log_entries e LEFT JOIN openings o "
        "ON o.tenant_id = e.tenant_id AND o.seq = e.seq"
    )
    meant = {
        (place, getattr(row, name), row.seq)
        for place, name in enumerate(FACETS)
        for row in entries
        if getattr(row, name) is not None and row.seq < indexed_size(place, size)
    }
    found = await named(world)
    assert set(found) == meant
    assert len(found) == len(meant)
    spans = await world.rows("SELECT seq, until_seq FROM log_spans ORDER BY seq")
    assert [row.seq for row in spans[1:]] == [row.until_seq for row in spans[:-1]]
    assert spans[-1].until_seq == indexed_size(SPAN, size)


async def named(world: OpenStore) -> list[tuple[int, str, int]]:
    """The entries that the rows of the index name."""
    rows = await world.rows("SELECT facet, value, seq, more FROM log_index")
    return [
        (row.facet, row.value, row.seq + distance)
        for row in rows
        for distance in (0, *(row.more or ()))
    ]


@pytest.mark.deep(stands_in="test_rows_of_several_entries_begin_only_after_the_upgrade_is_finished")
async def test_a_new_postgresql_database_gets_rows_of_several_entries(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    async with opened(postgresql_url) as world:
        for number in range(60):
            await world.log.append(TENANT, decision(user_id="uv"[number % 2]))
        rows = await world.rows("SELECT value, seq, more FROM log_index WHERE facet = 6")
        assert sorted(map(tuple, rows))[:3] == [("u", 0, [2]), ("u", 4, [2]), ("u", 8, [2])]
        await world.rows("DELETE FROM log_index WHERE facet = 6 AND value = 'v' AND seq = 9")
        report = await verify(world.store, TENANT)
        missing = "index_incomplete: seq 9: missing from the index of `user_id`"
        assert (report["valid"], report["reason"]) == (False, missing)


SWITCH = "COMMENT ON TABLE alembic_version IS 'readable since {}'"
SEVERAL = "SELECT count(*) FROM log_index WHERE more IS NOT NULL"


async def test_rows_of_several_entries_begin_only_after_the_upgrade_is_finished(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both forms are there then. Lists, erasure and verification take them as one index."""
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    serving = postgres.serving(migrated_url)
    await sql(migrated_url, SWITCH.format(READABLE_SINCE))
    async with opened(serving) as world:
        await append(world, 60)
        await migrate(migrated_url, serving)  # it alone changes nothing
        await append(world, 20)
        assert await world.rows(SEVERAL) == [(0,)]
        await migrate(migrated_url, serving, finish=True)
        await append(world, 100)
        await migrate(migrated_url, serving)  # nor does it go back
        await append(world, 40)
        assert await world.rows(f"{SEVERAL} AND seq < 48") == [(0,)]
        assert await world.rows(f"{SEVERAL} AND seq > 180") != [(0,)]
        # A row names entries within the step.
        assert await world.rows(f"{SEVERAL} AND 4 <= ANY (more)") == [(0,)]
        for session in range(5):
            await listed(world, f"s-{session}", [*range(session, 220, 5)][::-1])
        request = ErasureRequest(TENANT, ErasureTarget("user_id", "u-1"), "key", "asked")
        assert (await Erasure(world.store, request, event_id).run()).entries == 73
        assert "u-1" not in {value for _, value, _ in await named(world)}
        report = await verify(world.store, TENANT)
        assert report["valid"], report


async def append(world: OpenStore, many: int) -> None:
    """Entries of three users and five sessions in turn."""
    size = (await world.rows("SELECT count(*) FROM log_entries"))[0][0]
    for number in range(size, size + many):
        user, session = f"u-{number % 3}", f"s-{number % 5}"
        await world.log.append(TENANT, decision(user_id=user, session_id=session))


async def listed(world: OpenStore, session: str, newest: list[int]) -> None:
    """Asserts that lists of the session show its entries, in whatever pages."""
    filters = EventFilters(session_id=session)
    async with world.store.reading(TENANT) as connection:
        rows = await search(connection, TENANT, filters, 100)
        assert [row.seq for row in rows] == newest
        for at in range(0, len(newest), 7):
            rows = await search(connection, TENANT, filters, 7, before=newest[at] + 1)
            assert [row.seq for row in rows] == newest[at : at + 7]
            rows = await search(connection, TENANT, filters, 7, after=newest[at])
            assert [row.seq for row in rows] == newest[max(0, at - 7) : at][::-1]


@pytest.mark.deep(stands_in="test_the_index_matches_what_is_appended_and_removed")
@pytest.mark.parametrize("seed", range(4))
async def test_the_remaining_entries_of_a_row_stay_in_the_index(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    chance = random.Random(seed)
    for _ in range(70):
        await world.log.append(TENANT, decision(user_id=chance.choice("fg")))
    before = await named(world)
    erased = chance.sample([seq for place, value, seq in before if (place, value) == (6, "f")], 9)
    cut = chance.randrange(5, 40)
    of_role = [seq for place, _, seq in before if place == 0 and seq < cut]

    async def remove(tx: Transaction) -> None:
        await remove_entries(tx.connection, TENANT, "user_id", "f", erased)
        removal = removal_of_range(tx.connection.dialect)
        removed = (TENANT, 0, "support", min(of_role), max(of_role))
        await tx.connection.exec_driver_sql(removal, removed)

    await world.store.write(TENANT, remove)
    gone = {(6, "f", seq) for seq in erased} | {(0, "support", seq) for seq in of_role}
    after = await named(world)
    assert set(after) == set(before) - gone
    assert len(after) == len(set(after))


@pytest.mark.deep(stands_in="test_the_index_matches_what_is_appended_and_removed")
async def test_one_transaction_may_complete_many_blocks(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large reload appends all of its change records in one transaction."""
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)

    async def work(tx: Transaction) -> None:
        for _ in range(203):
            await tx.append(decision())

    await world.store.write(TENANT, work)
    await world.log.append(TENANT, decision())
    report = await verify(world.store, TENANT)
    assert report["valid"], report
    spans = await world.rows("SELECT seq, until_seq FROM log_spans ORDER BY seq")
    assert {row.until_seq - row.seq for row in spans[1:]} == {32}
