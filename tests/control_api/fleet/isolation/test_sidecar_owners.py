"""Which key uses which sidecar id: one at a time, until it is dead, replaced or long silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from control_api.fleet import isolation
from control_api.fleet.isolation import TRUSTED, KeyedCaller, SidecarOwners
from control_api.registry import queries
from control_api.store.queries import key_rows
from control_api.store.queries.key_rows import StoredKey
from control_api.store.queries.sidecar_rows import KEPT, FleetReports, StoredSidecar
from control_api.store.transaction import Transaction
from policies.sets.policy_set import enrolment_document, enrolment_name
from tests.support.open_store import OTHER, TENANT, OpenStore, opened


class World:
    def __init__(self, store: OpenStore) -> None:
        self.open, self.owners = store, SidecarOwners(store.store)
        self._made = 0

    async def key(self, *agent_ids: str, tenant: str = TENANT, **changed: Any) -> KeyedCaller:
        """The holder of a new key of scope `sidecar`."""
        self._made += 1
        row = StoredKey(
            f"key_{self._made}",
            "k",
            "sidecar",
            self._made.to_bytes(32, "big"),
            None,
            (),
            **{"expires_at": None, "created_at": 0, "agent_ids": agent_ids, **changed},
        )

        async def work(tx: Transaction) -> None:
            await key_rows.add(tx.connection, tx.tenant_id, row)

        await self.open.store.write(tenant, work)
        return keyed_caller(row.published(), tenant)

    async def revoke(self, keyed_caller: KeyedCaller) -> None:
        async def work(tx: Transaction) -> None:
            await key_rows.revoke(tx.connection, tx.tenant_id, keyed_caller.key.key_id, tx.now)

        await self.open.store.write(TENANT, work)

    async def pods(self, agent_id: str, *, live: bool) -> None:
        body = enrolment_document("enr_1", "r") if live else None

        async def work(tx: Transaction) -> None:
            await tx.publish({enrolment_name(agent_id): body})

        await self.open.store.write(TENANT, work)

    async def held(self) -> list[tuple[str, str]]:
        rows = await self.open.rows("SELECT sidecar_id, owner FROM sidecar_owners ORDER BY 1")
        return [tuple(row) for row in rows]


def keyed_caller(key: Any, tenant: str = TENANT, agent_id: str | None = None) -> KeyedCaller:
    state = SimpleNamespace(tenant_id=tenant, enrolled_agent=lambda _: agent_id)
    return cast(KeyedCaller, SimpleNamespace(tenant=state, key=key, digest=b"d"))


@pytest.fixture
async def world(sqlite_url: str) -> AsyncIterator[World]:
    async with opened(sqlite_url) as store:
        yield World(store)


@pytest.fixture
async def either(either_url: str) -> AsyncIterator[World]:
    async with opened(either_url) as store:
        yield World(store)


async def test_a_dead_key_s_sidecar_is_taken_and_a_live_one_s_is_not(either: World) -> None:
    first, thief = await either.key("agt_a"), await either.key("agt_b")
    assert await either.owners.admits(first, "pod-1")
    assert not await either.owners.admits(thief, "pod-1")
    assert await either.held() == [("pod-1", first.key.key_id)]
    await either.revoke(first)
    assert await either.owners.admits(thief, "pod-1")
    assert await either.held() == [("pod-1", thief.key.key_id)]
    brief = await either.key("agt_c", expires_at=either.open.now() + 1_000_000)
    assert await either.owners.admits(brief, "pod-2")
    either.open.now.ahead += 2_000_000
    assert await either.owners.admits(thief, "pod-2")


async def test_sidecars_of_a_replaced_key_are_still_admitted(world: World) -> None:
    old = await world.key("agt_a", "agt_b")
    assert await world.owners.admits(old, "pod-1")
    # Both are live while the new key is rolled out. Of fewer agents, it is another's.
    assert not await world.owners.admits(await world.key("agt_a"), "pod-1")
    new = await world.key("agt_a", "agt_b")
    assert await world.owners.admits(new, "pod-1")
    # What was known of the old key is not trusted for longer than a minute.
    world.open.now.ahead += TRUSTED + 1
    assert await world.owners.admits(new, "pod-1")
    # One from before keys had agents is replaced by any.
    older = await world.key(agent_ids=None)
    assert await world.owners.admits(older, "pod-2")
    assert await world.owners.admits(await world.key("agt_c"), "pod-2")


async def test_pods_and_a_key_of_the_same_agent_replace_each_other(world: World) -> None:
    by_hand, thief = await world.key("agt_a"), await world.key("agt_b")
    pods = keyed_caller(by_hand.key, agent_id="agt_a")
    await world.pods("agt_a", live=True)
    assert await world.owners.admits(by_hand, "pod-1")
    assert await world.owners.admits(pods, "pod-1")
    assert await world.held() == [("pod-1", "agent/agt_a")]
    assert not await world.owners.admits(thief, "pod-1")
    assert await world.owners.admits(by_hand, "pod-1")
    assert await world.owners.admits(pods, "pod-1")
    await world.pods("agt_a", live=False)
    assert await world.owners.admits(thief, "pod-1")


async def test_only_one_of_many_keys_that_want_an_id_at_once_gets_it(either: World) -> None:
    wanting = [await either.key(f"agt_{number}") for number in range(8)]
    admitted = await asyncio.gather(*(either.owners.admits(each, "pod-1") for each in wanting))
    assert sum(admitted) == 1
    [(_, owner)] = await either.held()
    await either.revoke(next(each for each in wanting if each.key.key_id == owner))
    others = [each for each in wanting if each.key.key_id != owner]
    anew = SidecarOwners(either.open.store)
    assert sum(await asyncio.gather(*(anew.admits(each, "pod-1") for each in others))) == 1


async def test_ids_that_are_long_silent_are_forgotten_some_at_a_time(
    either: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "FORGOTTEN_AT_ONCE", 7)
    monkeypatch.setattr(isolation, "PAUSE_SECONDS", 0.0)
    key, elsewhere = await either.key("agt_a"), await either.key("agt_a", tenant=OTHER)
    for number in range(20):
        assert await either.owners.admits(key, f"pod-{number:02}")
    assert await either.owners.admits(elsewhere, "pod-00")
    either.open.now.ahead += KEPT + 1_000_000
    assert await either.owners.admits(key, "pod-new")
    listed = StoredSidecar(
        "pod-05", "run", "1", None, None, "e", 1, None, 0, None, None, 0, either.open.now()
    )
    await FleetReports(either.open.store).report(TENANT, listed)
    sizes = []
    forget = queries.forget

    def counted(*asked: Any) -> int:
        sizes.append(forget(*asked))
        return sizes[-1]

    monkeypatch.setattr(queries, "forget", counted)
    await either.owners.forget(TENANT)
    # One that reports keeps its id however long ago it was taken, and so does another tenant's.
    owner = key.key.key_id
    assert sorted(await either.held()) == sorted(
        [("pod-00", elsewhere.key.key_id), ("pod-05", owner), ("pod-new", owner)]
    )
    assert sizes == [7, 7, 5]
    other = await either.key("agt_b")
    assert await SidecarOwners(either.open.store).admits(other, "pod-01")


async def test_the_owners_in_memory_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_MOST", 3)
    key = await world.key("agt_a")
    for number in range(9):
        assert await world.owners.admits(key, f"pod-{number}")
    assert len(world.owners._known) == 3  # noqa: SLF001
