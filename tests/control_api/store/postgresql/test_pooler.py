"""PostgreSQL behind a real PgBouncer in transaction mode: each transaction has another session, and
leaves nothing in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import asyncpg
import pytest
from sqlalchemy import text

from control_api.database_limits import DatabaseLimits
from control_api.log.verify import verify
from control_api.store.errors import ReadFault
from tests.support import pgbouncer
from tests.support.open_store import OTHER, TENANT, OpenStore, decision, opened

LIMITS = DatabaseLimits(connections=12, pooled=True)
MANY = 40


@pytest.fixture
def pooled_url(postgresql_url: str) -> Iterator[str]:
    with pgbouncer.before(postgresql_url) as url:
        yield url


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[OpenStore]:
    async with opened(pooled_url, LIMITS) as world:
        yield world


async def left_in_sessions(pooled: OpenStore) -> set[tuple[str, str, int]]:
    """The settings, and the number of prepared statements, of each of the pooler's sessions."""
    # A session that has served no client yet knows no tenant: the pooler may have opened it for a
    # client that got another one in the meantime.
    left = (
        "SELECT coalesce(current_setting('sluice.tenant', true), ''),"
        " current_setting('statement_timeout'),"
        " (SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql)"
    )
    url = pooled.url.replace("+asyncpg", "")
    async with AsyncExitStack() as holding:
        rows = []
        # Each client holds its session, so that the next one has another.
        for _ in range(pgbouncer.SESSIONS):
            client = await asyncpg.connect(url, statement_cache_size=0)
            holding.push_async_callback(client.close)
            await client.execute("BEGIN")
            rows.append(tuple(await client.fetchrow(left)))
    return set(rows)


async def test_logs_of_two_tenants_grow_at_once_and_verify(pooled: OpenStore) -> None:
    tenants = (TENANT, OTHER) * MANY
    await asyncio.gather(*(pooled.log.append(tenant, decision()) for tenant in tenants))
    for tenant in (TENANT, OTHER):
        report = await verify(pooled.store, tenant)
        assert (report["valid"], report["total"]) == (True, MANY)
    assert await left_in_sessions(pooled) == {("", "0", 0)}
    async with pooled.store.reading(TENANT) as connection:
        shown = (await connection.execute(text("SHOW statement_timeout"))).scalar()
    assert shown == f"{LIMITS.seconds:.0f}s"


@pytest.mark.deep(stands_in="test_logs_of_two_tenants_grow_at_once_and_verify")
async def test_no_transaction_sees_the_tenant_of_another(pooled: OpenStore) -> None:
    async def seen(tenant: str) -> tuple[str, str]:
        async with pooled.store.reading(tenant) as connection:
            acts_for = text("SELECT current_setting('sluice.tenant'), pg_sleep(0.01)")
            return tenant, (await connection.execute(acts_for)).one()[0]

    answers = await asyncio.gather(*(seen(each) for each in (TENANT, OTHER) * MANY))
    assert all(tenant == acts_for for tenant, acts_for in answers)


@pytest.mark.deep(stands_in="test_logs_of_two_tenants_grow_at_once_and_verify")
async def test_sessions_keep_neither_settings_nor_statements(pooled: OpenStore) -> None:
    for tenant in (TENANT, OTHER) * 4:
        await pooled.log.append(tenant, decision())
    assert await left_in_sessions(pooled) == {("", "0", 0)}


async def test_a_statement_that_runs_too_long_is_ended(pooled_url: str) -> None:
    async with opened(pooled_url, LIMITS):
        pass  # it has its tenants now
    async with opened(pooled_url, replace(LIMITS, seconds=1)) as pooled:
        with pytest.raises(ReadFault):
            async with pooled.store.reading(TENANT) as connection:
                await connection.execute(text("SELECT pg_sleep(60)"))
