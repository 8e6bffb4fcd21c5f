"""A tenant that this process deactivates stays deactivated, whatever was read meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_api.caches.tenant_cache import TenantCache
from control_api.store.queries import tenants
from control_api.store.transaction import Transaction
from policies.definitions.model import TenantSettings
from policies.sets import policy_set
from tests.control_api.store.world import TENANT, World, opened

Read = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as made:
        yield made


async def deactivate(world: World) -> None:
    async def work(tx: Transaction) -> None:
        row = await tenants.get(tx.connection, TENANT)
        assert row is not None
        await tenants.put(tx.connection, replace(row, active=False))
        settings = TenantSettings(tenant_id=TENANT, active=False)
        await tx.publish({policy_set.TENANT: policy_set.tenant_document(settings)})

    await world.store.write(TENANT, work)


def deactivating_behind(read: Read, world: World) -> Read:
    """Like `read`, but the tenant is deactivated between the first read and its end."""
    reads = 0

    @asynccontextmanager
    async def held(*arguments: Any) -> AsyncIterator[Any]:
        nonlocal reads
        reads += 1
        first = reads == 1
        async with read(*arguments) as connection:
            yield connection
        if first:
            await deactivate(world)

    return held


async def test_a_refresh_that_read_before_the_deactivation_does_not_undo_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = TenantCache(world.store)
    state = await cache.get(TENANT)
    before = state.active
    slow = deactivating_behind(world.database.reading_all_tenants, world)
    monkeypatch.setattr(world.database, "reading_all_tenants", slow)
    await cache.refresh()
    after = state.active
    await cache.refresh()
    assert (before, after, state.active) == (True, False, False)


async def test_a_tenant_deactivated_while_it_is_loaded_is_loaded_as_such(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = TenantCache(world.store)
    slow = deactivating_behind(world.database.reading, world)
    monkeypatch.setattr(world.database, "reading", slow)
    assert not (await cache.get(TENANT)).active
