"""A tenant that this process deactivates stays deactivated, whatever was read meanwhile; and what
other processes commit is in force here, in whichever order both are learned."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_api.store.notices import Notice
from control_api.store.queries import tenant_rows
from control_api.store.queries.session_rows import SessionRow
from control_api.store.tenant_cache import TenantCache
from control_api.store.transaction import Published, Transaction
from policies.definitions.model import Key, TenantSettings
from policies.ground.keys import key_digest
from policies.sets import policy_set
from policies.sets.policy_set import key_document, key_name, session_document, session_name
from tests.control_api.store.databases import postgresql_url
from tests.support.open_store import OTHER, TENANT, OpenStore, opened
from tests.support.waiting import PATIENCE, turns, until_async

__all__ = ["postgresql_url"]
DIGEST = key_digest("a key")
Read = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[OpenStore]:
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as made:
        yield made


async def deactivate(world: OpenStore) -> None:
    async def work(tx: Transaction) -> None:
        row = await tenant_rows.get(tx.connection, TENANT)
        assert row is not None
        await tenant_rows.put(tx.connection, replace(row, active=False))
        settings = TenantSettings(tenant_id=TENANT, active=False)
        await tx.publish({policy_set.TENANT: policy_set.tenant_document(settings)})

    await world.store.write(TENANT, work)


def deactivating_behind(read: Read, world: OpenStore) -> Read:
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
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
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


async def test_a_tenant_deactivated_while_it_is_loaded_is_inactive(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = TenantCache(world.store)
    slow = deactivating_behind(world.database.reading, world)
    monkeypatch.setattr(world.database, "reading", slow)
    assert not (await cache.get(TENANT)).active


@pytest.fixture
async def pair(postgresql_url: str) -> AsyncIterator[tuple[OpenStore, OpenStore]]:
    """Two processes on one database."""
    async with opened(postgresql_url) as here, opened(postgresql_url) as there:
        yield here, there


async def publish(world: OpenStore, key_id: str | None, **others: bytes) -> None:
    """Publish a key under this id, or none, and further documents."""
    body = None if key_id is None else key_document(Key(key_id, "evaluate"))

    async def work(tx: Transaction) -> None:
        await tx.publish({key_name(DIGEST): body, **others})

    await world.store.write(TENANT, work)


async def key_in_force(cache: TenantCache) -> str | None:
    found = await (await cache.get(TENANT)).find_key(DIGEST)
    return None if found is None else found.key_id


async def cache_that_missed_a_revision(here: OpenStore, there: OpenStore) -> TenantCache:
    """The cache of `here` after a key was revoked there and something else was written here."""
    cache = TenantCache(here.store)
    await publish(here, "live")
    assert await key_in_force(cache) == "live"
    await publish(there, None)
    await publish(here, None, other=b"1")  # the key's document is unchanged: only the other's goes
    assert await key_in_force(cache) is None
    return cache


@pytest.mark.deep(stands_in="test_a_revision_missed_by_this_process_hides_nothing")
async def test_a_write_here_hides_none_that_another_process_committed_before(
    pair: tuple[OpenStore, OpenStore],
) -> None:
    """A key that is revoked there just before a write here does not stay valid here."""
    await cache_that_missed_a_revision(*pair)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[OpenStore, OpenStore]]:
    """The same on a file, which costs less: neither tells the other of anything."""
    url = f"sqlite:///{tmp_path}/sluice.db"
    async with opened(url) as here, opened(url) as there:
        yield here, there


async def test_a_revision_missed_by_this_process_hides_nothing(
    two: tuple[OpenStore, OpenStore],
) -> None:
    here, there = two
    cache = await cache_that_missed_a_revision(here, there)
    # The database goes back: the next revisions are other ones than those that were seen.
    await publish(here, "lost", second=b"lost")
    assert await key_in_force(cache) == "lost"
    kept = key_document(Key("kept", "evaluate"))
    await here.rows("UPDATE tenants SET revision = 1")
    await here.rows(
        "UPDATE documents SET revision = 1, body = :kept WHERE name LIKE 'key/%'", kept=kept
    )
    await cache.refresh()
    assert await key_in_force(cache) == "kept"
    await publish(there, "next")
    await cache.refresh()
    assert await key_in_force(cache) == "next"


async def test_notices_that_arrive_during_a_read_cause_only_one_more(
    two: tuple[OpenStore, OpenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a tenant that can't be read drops no other of its round."""
    here, there = two
    cache = TenantCache(here.store)
    states = {name: await cache.get(name) for name in (TENANT, OTHER)}
    reads: list[str] = []
    read, begun, released = here.database.reading, asyncio.Event(), asyncio.Event()
    failing = {TENANT, OTHER}

    @asynccontextmanager
    async def held(tenant_id: str) -> AsyncIterator[Any]:
        reads.append(tenant_id)
        begun.set()
        await released.wait()
        if tenant_id in failing:
            raise ConnectionError
        async with read(tenant_id) as connection:
            yield connection

    monkeypatch.setattr(here.database, "reading", held)
    following = asyncio.ensure_future(cache.follow_notices())
    try:
        for spared, failed in ((TENANT, OTHER), (OTHER, TENANT)):
            reads.clear()
            begun.clear()
            released.clear()
            revision = states[spared].policy_set.revision + 1
            # The first round holds one that fails, so the second has both.
            cache.noticed(Notice(failed, 100))
            await begun.wait()
            await publish_for(there, spared, spared)
            for number in range(20):
                cache.noticed(Notice(failed, 100 + number))
                cache.noticed(Notice(spared, revision + number))
            failing.discard(spared)
            released.set()
            await until_async(
                "the spared one is read",
                lambda: states[spared].policy_set.revision == revision,  # noqa: B023
            )
            await until_async("the other is read again", lambda: reads.count(failed) >= 2)  # noqa: B023
            await turns()
            assert sorted(reads) == sorted([failed, failed, spared])
            failing.add(spared)
    finally:
        following.cancel()


async def publish_for(world: OpenStore, tenant_id: str, key_id: str) -> None:
    body = key_document(Key(key_id, "evaluate"))
    work = functools.partial(Transaction.publish, changed={key_name(DIGEST): body})
    await world.store.write(tenant_id, work)


async def test_a_commit_of_another_process_is_in_force_here_and_wakes_waiters(
    pair: tuple[OpenStore, OpenStore],
) -> None:
    here, there = pair
    cache = TenantCache(here.store)
    await publish(here, "live")
    assert await key_in_force(cache) == "live"
    state = await cache.get(TENANT)
    session = SessionRow("s", "support", None, "ann", 0, 1 << 60)
    state.sessions.keep(session)
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(state.wait(PATIENCE))
        await turns()
        await publish(there, "theirs", **{session_name("s"): session_document("s")})
        await deactivate(there)
        assert not waiter.done()
        await cache.refresh()
        await turns()
        assert waiter.done()
        waiter.cancel()
    assert await key_in_force(cache) == "theirs"
    assert (state.active, state.sessions.at("s", 0)) == (False, None)


async def test_a_later_revision_that_was_read_first_is_not_replaced_by_an_older_one(
    pair: tuple[OpenStore, OpenStore],
) -> None:
    """The store tells of an own commit after another process's next one was read."""
    here, there = pair
    told: list[Published] = []
    here.store.on_published(lambda _, published: told.append(published))
    await publish(here, "mine")
    await publish(there, "theirs")
    cache = TenantCache(here.store)
    assert await key_in_force(cache) == "theirs"
    cache.published(TENANT, told[0])
    assert await key_in_force(cache) == "theirs"


@pytest.mark.deep(stands_in="test_a_revision_missed_by_this_process_hides_nothing")
async def test_a_database_that_went_back_is_followed(pair: tuple[OpenStore, OpenStore]) -> None:
    """Such as a standby that lacked the last commits: its next ones have revisions seen before."""
    here, there = pair
    cache = TenantCache(here.store)
    await publish(here, "kept")
    await publish(here, "lost", second=b"lost")
    assert await key_in_force(cache) == "lost"
    kept = key_document(Key("kept", "evaluate")).hex()
    await here.rows("UPDATE tenants SET revision = 1")
    await here.rows(
        f"UPDATE documents SET body = '\\x{kept}', revision = 1 WHERE name LIKE 'key/%'"
    )
    await cache.refresh()
    assert await key_in_force(cache) == "kept"
    await publish(there, "next")
    await cache.refresh()
    assert await key_in_force(cache) == "next"
