"""The index covers what follows from the log's size, in whatever steps the log grew."""

from __future__ import annotations

import asyncio
import random

import pytest

from control_api.log.verify import verify
from control_api.store.log import index as log_index
from control_api.store.log.index import BLOCK, FACETS, SPAN, block_end, indexed_size
from control_api.store.transaction import Transaction
from tests.control_api.store.world import TENANT, World, decision


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


def test_no_size_is_the_end_of_two_blocks() -> None:
    """No transaction has to write every block."""
    for size in range(1, 2 * BLOCK):
        due = [place for place in range(SPAN + 1) if indexed_size(place, size) == size]
        assert len(due) <= 1


@pytest.mark.parametrize("seed", range(3))
async def test_the_index_holds_exactly_the_entries_below_its_size(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
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
    found = await world.rows("SELECT facet, value, seq FROM log_index")
    assert {tuple(row) for row in found} == meant
    assert len(found) == len(meant)
    spans = await world.rows("SELECT seq, until_seq FROM log_spans ORDER BY seq")
    assert [row.seq for row in spans[1:]] == [row.until_seq for row in spans[:-1]]
    assert spans[-1].until_seq == indexed_size(SPAN, size)


async def test_one_transaction_may_complete_many_blocks(
    world: World, monkeypatch: pytest.MonkeyPatch
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
