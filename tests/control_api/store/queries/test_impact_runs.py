"""The lease of an impact run: one process at a time saves how far it has come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control_api.policy import impact_counts, impact_queries
from control_api.policy.impact_counts import KEPT, forget_ended_runs
from control_api.policy.impact_queries import Reached, RunState, StoredRun
from control_api.store.transaction import Transaction
from tests.support.open_store import OTHER, TENANT, OpenStore, opened

REACHED = Reached(7, b"leaf", "event-6", b'{"read":7}')


def run_of(impact_id: str, now: int, **changed: Any) -> StoredRun:
    fields: dict[str, Any] = {
        "impact_id": impact_id, "state": RunState.running, "reason": None, "created_by": "key_1",
        "created_at": now, "ended_at": None, "first_seq": 0, "until_seq": 100, "next_seq": 0,
        "last_leaf": b"", "last_eid": None, "counts": b"", "checkpoint_size": None, "attempts": 0,
        "lease": None, "leased_until": now,
    }  # fmt: skip
    return StoredRun(**{**fields, **changed})


async def add(world: OpenStore, run: StoredRun, tenant_id: str = TENANT) -> None:
    async def work(tx: Transaction) -> None:
        await impact_queries.add(tx.connection, tx.tenant_id, run, b"[]")

    await world.store.write(tenant_id, work)


async def claim(world: OpenStore, lease: str, *, seconds: int = 5) -> StoredRun | None:
    async def work(tx: Transaction) -> StoredRun | None:
        until = tx.now + seconds * 1_000_000
        return await impact_queries.claim(
            tx.connection, tx.tenant_id, "imp_1", lease, tx.now, until
        )

    return await world.store.write(TENANT, work)


async def save(world: OpenStore, lease: str, reached: Reached = REACHED) -> bool:
    async def work(tx: Transaction) -> bool:
        until = tx.now + 5_000_000
        return await impact_queries.save(
            tx.connection, tx.tenant_id, "imp_1", lease, reached, until
        )

    return await world.store.write(TENANT, work)


async def stored(world: OpenStore) -> StoredRun:
    async with world.store.reading(TENANT) as connection:
        found = await impact_queries.find(connection, TENANT, "imp_1")
    assert found is not None
    return found


@pytest.mark.deep(stands_in="test_a_process_that_lost_its_lease_saves_nothing")
async def test_only_one_of_two_processes_gets_a_run(either_url: str) -> None:
    async with opened(either_url) as one, opened(either_url) as other:
        await add(one, run_of("imp_1", one.now()))
        for round_ in range(5):
            claimed = await asyncio.gather(
                claim(one, f"one {round_}"), claim(other, f"other {round_}")
            )
            [held] = [each for each in claimed if each is not None]
            assert held.attempts == round_ + 1
            one.now.ahead += 6_000_000
            other.now.ahead += 6_000_000


async def test_a_process_that_lost_its_lease_saves_nothing(either_url: str) -> None:
    async with opened(either_url) as world:
        await add(world, run_of("imp_1", world.now()))
        # Of two that claim at once, one gets it.
        claimed = await asyncio.gather(claim(world, "slow"), claim(world, "slow"))
        [held] = [each for each in claimed if each is not None]
        assert held.attempts == 1
        assert await save(world, "slow")
        assert await claim(world, "fast") is None
        world.now.ahead += 6_000_000
        taken = await claim(world, "fast")
        assert taken is not None
        assert taken.attempts == 1
        assert (taken.next_seq, taken.last_leaf, taken.counts) == (7, b"leaf", b'{"read":7}')
        assert not await save(world, "slow", Reached(9, b"other", None, b"{}"))
        assert (await stored(world)).next_seq == 7
        assert await save(world, "fast", Reached(8, b"next", None, b"{}"))
        assert ((await stored(world)).next_seq, (await stored(world)).attempts) == (8, 0)


async def test_an_ended_run_is_not_changed(either_url: str) -> None:
    async with opened(either_url) as world:
        await add(world, run_of("imp_1", world.now()))
        await claim(world, "mine")

        async def cancel(tx: Transaction) -> bool:
            ended = {"state": RunState.cancelled, "ended_at": tx.now}
            return await impact_queries.end(tx.connection, tx.tenant_id, "imp_1", None, ended)

        async def finish(tx: Transaction) -> bool:
            ended = {"state": RunState.done, "ended_at": tx.now}
            return await impact_queries.end(tx.connection, tx.tenant_id, "imp_1", "mine", ended)

        assert await world.store.write(TENANT, cancel)
        assert not await save(world, "mine")
        assert not await world.store.write(TENANT, finish)
        assert (await stored(world)).state == "cancelled"
        async with world.store.reading(TENANT) as connection:
            assert await impact_queries.policies_of(connection, TENANT, "imp_1") is None
        world.now.ahead += 6_000_000
        async with world.store.reading_all_tenants() as connection:
            assert await impact_queries.due(connection, world.now(), 10) == []


async def test_runs_of_all_tenants_are_found_longest_waiting_first(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(either_url) as world:
        now = world.now()
        await add(world, run_of("imp_b", now), OTHER)
        await add(world, run_of("imp_a", now - 5))
        await add(world, run_of("imp_c", now, leased_until=now + 60_000_000))
        async with world.store.reading_all_tenants() as connection:
            found = await impact_queries.due(connection, world.now(), 10)
        assert found == [(TENANT, "imp_a"), (OTHER, "imp_b")]
        # Only runs that have ended long ago are forgotten.
        for name, since in (("imp_d", KEPT + 1), ("imp_e", 0)):
            ended = {"state": "done", "ended_at": now - since, "leased_until": None}
            await add(world, run_of(name, now, **ended))
        assert await forget_ended_runs(world.store, TENANT) == 1
        rows = await world.rows("SELECT impact_id FROM impact_runs ORDER BY impact_id")
        assert [row.impact_id for row in rows] == ["imp_a", "imp_b", "imp_c", "imp_e"]
        # Nor are there more of those than that.
        monkeypatch.setattr(impact_counts, "MOST", 1)
        await add(world, run_of("imp_f", now, state="done", ended_at=now - 9, leased_until=None))
        assert await forget_ended_runs(world.store, TENANT) == 1
        rows = await world.rows("SELECT impact_id FROM impact_runs ORDER BY impact_id")
        assert [row.impact_id for row in rows] == ["imp_a", "imp_b", "imp_c", "imp_e"]


@pytest.mark.deep(stands_in="test_runs_of_all_tenants_are_found_longest_waiting_first")
async def test_ended_runs_are_forgotten_by_age_and_by_number(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 1
    monkeypatch.setattr(impact_counts, "MOST", most)
    async with opened(either_url) as world:
        now = world.now()
        for number in range(most + 2):
            ended = {"state": "done", "ended_at": now - number, "leased_until": None}
            await add(world, run_of(f"imp_{number:03}", now, **ended))
        old = {"state": "failed", "ended_at": now - KEPT - 1, "leased_until": None}
        await add(world, run_of("imp_old", now, **old), OTHER)
        await add(world, run_of("imp_1", now - 2 * KEPT))
        assert await forget_ended_runs(world.store, TENANT) == 2
        rows = await world.rows("SELECT impact_id FROM impact_runs ORDER BY impact_id")
        kept = {row.impact_id for row in rows}
        assert kept == {f"imp_{number:03}" for number in range(most)} | {"imp_1", "imp_old"}
        assert await forget_ended_runs(world.store, OTHER) == 1
