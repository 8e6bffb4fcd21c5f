"""Row-level security on PostgreSQL: even a query without its tenant sees one tenant's rows, and the
service's role can neither disable the policies nor bypass them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from control_api.store.migrate import migrate
from control_api.store.postgresql.engine import GRANTS
from control_api.store.postgresql.transaction import ALL_TENANTS
from control_api.store.queries import key_rows, tenant_rows
from control_api.store.queries.key_rows import StoredKey
from control_api.store.schema.tables import metadata
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from control_api.store.url import UnusableDatabase
from tests.support.open_store import OTHER, TENANT, OpenStore, decision, opened, sql
from tests.support.postgres import serving, unbound

OF_NO_TENANT = {"installation", "log_keys"}
ACROSS = OF_NO_TENANT | {
    "tenants", "log_heads", "alert_rules", "alert_deliveries", "sidecars", "impact_runs",
    "export_positions",
}  # fmt: skip
"""The tables that can be read across tenants."""

READABLE = ["tenants", "log_entries", "log_heads", "openings", "api_keys"]
"""Tables of which each of two tenants has a row."""

IN_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sluice' "
    "AND datname = current_database() AND state LIKE 'idle in transaction%'"
)


@pytest.fixture
async def two(postgresql_url: str) -> AsyncIterator[OpenStore]:
    """Two tenants, with a log and a key each."""
    async with opened(postgresql_url) as world:
        for tenant_id in (TENANT, OTHER):
            await world.log.append(tenant_id, decision())
            await world.store.write(tenant_id, _with_key)
        yield world


async def _with_key(tx: Transaction) -> None:
    key = StoredKey("key_1", "a", "read", digest(tx.tenant_id), None, (), None, tx.now)
    await key_rows.add(tx.connection, tx.tenant_id, key)


def digest(tenant_id: str) -> bytes:
    return tenant_id.encode().ljust(32, b"\0")


async def seen(store: Store, table: str, tenant_id: str) -> set[str]:
    async with store.reading(tenant_id) as connection:
        return set((await connection.execute(text(f"SELECT tenant_id FROM {table}"))).scalars())


@asynccontextmanager
async def role_of(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.deep(stands_in="test_nothing_is_written_for_another_tenant")
@pytest.mark.parametrize("table", READABLE)
async def test_a_query_without_its_tenant_sees_one_tenants_rows(two: OpenStore, table: str) -> None:
    for tenant_id in (TENANT, OTHER):
        assert await seen(two.store, table, tenant_id) == {tenant_id}
    assert await seen(two.store, table, "ten_none") == set()


async def test_only_the_listed_tables_can_be_read_across_tenants(two: OpenStore) -> None:
    async with two.store.reading_all_tenants() as connection:
        for table in metadata.tables:
            found = await connection.execute(text(f"SELECT DISTINCT tenant_id FROM {table}"))
            if table not in ACROSS:
                assert found.all() == [], table
        assert set(await tenant_rows.ids(connection)) == {TENANT, OTHER}
    assert await with_a_policy_across(two) == ACROSS & set(metadata.tables)
    assert set(GRANTS) == {*metadata.tables, "alembic_version"}
    async with two.store.reading_key(digest(OTHER)) as connection:
        assert await key_rows.tenant_of(connection, digest(OTHER)) == OTHER
        found = await connection.execute(text("SELECT tenant_id FROM api_keys"))
        assert found.all() == [(OTHER,)]
        assert (await connection.execute(text("SELECT 1 FROM log_entries"))).all() == []


async def test_a_key_is_found_only_by_its_digest(two: OpenStore) -> None:
    async with two.store.reading_key(digest(OTHER)) as connection:
        assert await key_rows.tenant_of(connection, digest(OTHER)) == OTHER
        assert await key_rows.tenant_of(connection, digest(TENANT)) is None
        assert (await connection.execute(text("SELECT tenant_id FROM api_keys"))).all() == [
            (OTHER,)
        ]
        assert (await connection.execute(text("SELECT 1 FROM log_entries"))).all() == []


FOREIGN = [
    "INSERT INTO sources VALUES ('ten_other', 's', 'i', 0, '', 0)",
    "UPDATE tenants SET tenant_id = 'ten_other'",
    "INSERT INTO installation VALUES ('ten_other', 'e', 0, NULL)",
    "UPDATE installation SET epoch = 'e'",
    "INSERT INTO log_keys VALUES ('ten_other', 0, '', NULL)",
]
"""Statements that would write for another tenant, or for all."""


async def test_nothing_is_written_for_another_tenant(two: OpenStore) -> None:
    for statement in [*FOREIGN, None]:

        async def work(tx: Transaction, statement: str | None = statement) -> None:
            await tx.connection.execute(text(statement or "UPDATE tenants SET name = 'renamed'"))

        if statement is None:  # a statement without a tenant reaches its own rows
            await two.store.write(TENANT, work)
            continue
        with pytest.raises(ProgrammingError, match=r"row-level security|permission denied"):
            await two.store.write(TENANT, work)
    assert set(await sql(two.url, "SELECT tenant_id, name FROM tenants")) == {
        (TENANT, "renamed"),
        (OTHER, OTHER),
    }
    # Nor is anything of another tenant read.
    for table in READABLE:
        assert await seen(two.store, table, TENANT) == {TENANT}
    assert await seen(two.store, "tenants", "ten_none") == set()

    async def delete(tx: Transaction) -> None:
        await tx.connection.execute(text("DELETE FROM openings"))

    await two.store.write(TENANT, delete)
    assert await sql(two.url, "SELECT tenant_id FROM openings") == [(OTHER,)]


@pytest.mark.deep(stands_in="test_nothing_is_written_for_another_tenant")
async def test_an_update_without_a_tenant_changes_only_own_rows(two: OpenStore) -> None:
    async def work(tx: Transaction) -> None:
        await tx.connection.execute(text("UPDATE tenants SET name = 'renamed'"))
        await tx.connection.execute(text("DELETE FROM openings"))

    await two.store.write(TENANT, work)
    assert set(await sql(two.url, "SELECT tenant_id, name FROM tenants")) == {
        (TENANT, "renamed"),
        (OTHER, OTHER),
    }
    assert await sql(two.url, "SELECT tenant_id FROM openings") == [(OTHER,)]


@pytest.mark.deep(stands_in="test_every_table_forces_row_security")
async def test_a_session_without_a_setting_sees_nothing(two: OpenStore) -> None:
    async with role_of(two.url) as connection:
        for table in metadata.tables:
            if table not in OF_NO_TENANT:
                assert await connection.fetch(f"SELECT * FROM {table}") == [], table
        # A transaction's setting ends with it.
        await connection.execute(f"BEGIN; SET LOCAL sluice.tenant = '{TENANT}'; COMMIT")
        assert await connection.fetch("SELECT * FROM api_keys") == []


FORBIDDEN = [
    "ALTER TABLE log_entries DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE log_entries NO FORCE ROW LEVEL SECURITY",
    "DROP POLICY of_tenant ON log_entries",
    "CREATE POLICY mine ON log_entries USING (true)",
    "UPDATE log_entries SET entry = ''",
    "TRUNCATE log_entries",
    "DROP TABLE openings",
    "CREATE TABLE mine (a int)",
    "SET ROLE owner",
    "SET ROLE sluice",
    "ALTER ROLE service BYPASSRLS",
    "SET row_security = off; SELECT * FROM log_entries",
    "UPDATE alembic_version SET version_num = '0007'",
]
"""Statements that would disable the policies, bypass them, or change what may only be added."""


@pytest.mark.deep(stands_in="test_every_table_forces_row_security")
@pytest.mark.parametrize("statement", FORBIDDEN)
async def test_the_services_role_cannot_disable_row_security(
    two: OpenStore, statement: str
) -> None:
    async with role_of(two.url) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)


async def test_every_table_forces_row_security(two: OpenStore) -> None:
    query = (
        "SELECT relname, relrowsecurity AND relforcerowsecurity FROM pg_class "
        "WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
    )
    walled = dict(await sql(two.url, query))
    assert walled.pop("alembic_version") is False
    assert walled == dict.fromkeys(metadata.tables, True)
    async with role_of(two.url) as connection:  # which acts for no tenant
        for table in walled.keys() - OF_NO_TENANT:
            assert await connection.fetch(f"SELECT * FROM {table}") == [], table
        for statement in FORBIDDEN:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


@pytest.mark.deep(stands_in="test_only_the_listed_tables_can_be_read_across_tenants")
async def test_few_tables_have_a_policy_across_tenants(two: OpenStore) -> None:
    assert await with_a_policy_across(two) == ACROSS & set(metadata.tables)


async def with_a_policy_across(world: OpenStore) -> set[str]:
    query = "SELECT tablename FROM pg_policies WHERE qual LIKE '%*%' OR qual = 'true'"
    return {row[0] for row in await sql(world.url, query)}


@pytest.mark.deep(stands_in="test_only_the_listed_tables_can_be_read_across_tenants")
async def test_every_table_is_granted(two: OpenStore) -> None:
    assert set(GRANTS) == {*metadata.tables, "alembic_version"}


@pytest.mark.deep(stands_in="test_every_table_forces_row_security")
async def test_row_security_applies_to_the_owner_too(postgres_url: str) -> None:
    """An installation with one role, which creates the tables and serves."""
    await migrate(postgres_url)
    async with opened(postgres_url) as world:
        await world.log.append(TENANT, decision())
        assert await seen(world.store, "log_entries", OTHER) == set()


@pytest.mark.deep(stands_in="test_roles_that_can_t_serve_are_refused_with_the_remedy")
async def test_a_role_that_bypasses_row_security_is_refused(migrated_url: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with opened(unbound(migrated_url)):
            pass
    assert caught.group_contains(
        UnusableDatabase, match="`sluice`, which row-level security does not bind"
    )


async def test_roles_that_can_t_serve_are_refused_with_the_remedy(migrated_url: str) -> None:
    service = serving(migrated_url)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with opened(unbound(migrated_url)):
            pass
    assert caught.group_contains(
        UnusableDatabase, match="`sluice`, which row-level security does not bind"
    )
    for lost in ("SELECT ON acknowledgements", "ALL ON ALL TABLES IN SCHEMA public"):
        await sql(migrated_url, f"REVOKE {lost} FROM service")
        with pytest.raises(BaseExceptionGroup) as caught:
            async with opened(service):
                pass
        assert caught.group_contains(
            UnusableDatabase, match="lacks SELECT on `acknowledgements`: run `sluice migrate`"
        )
    with pytest.raises(UnusableDatabase, match="there is no role `nobody`"):
        await migrate(migrated_url, migrated_url.replace("//owner:", "//nobody:"))


@pytest.mark.deep(stands_in="test_roles_that_can_t_serve_are_refused_with_the_remedy")
async def test_missing_grants_are_refused_with_the_remedy(postgres_url: str) -> None:
    await migrate(postgres_url)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with opened(serving(postgres_url)):
            pass
    assert caught.group_contains(
        UnusableDatabase, match="lacks SELECT on `acknowledgements`: run `sluice migrate`"
    )


@pytest.mark.deep(stands_in="test_roles_that_can_t_serve_are_refused_with_the_remedy")
async def test_granting_to_a_missing_role_fails(postgres_url: str) -> None:
    with pytest.raises(UnusableDatabase, match="there is no role `nobody`"):
        await migrate(postgres_url, postgres_url.replace("//owner:", "//nobody:"))


async def test_a_transaction_acts_for_its_tenant_alone_and_ends_with_its_reader(
    postgresql_url: str,
) -> None:
    async with opened(postgresql_url) as world:
        for tenant_id in ("a'b", "a\\'b", "''; RESET ROLE; --", "a\\", ALL_TENANTS + "'"):
            async with world.store.reading(tenant_id) as connection:
                said = await connection.execute(text("SELECT current_setting('sluice.tenant')"))
                assert said.scalar() == tenant_id
                assert (await connection.execute(text("SELECT 1 FROM tenants"))).all() == []
        for pause in range(4):
            task = asyncio.ensure_future(_read_slowly(world.store))
            await asyncio.sleep(pause / 200)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await sql(postgresql_url, IN_TRANSACTION) == [(0,)]


@pytest.mark.deep(stands_in="test_a_transaction_acts_for_its_tenant_alone_and_ends_with_its_reader")
@pytest.mark.parametrize(
    "tenant_id", ["a'b", "a\\'b", "''; RESET ROLE; --", "a\\", ALL_TENANTS + "'"]
)
async def test_a_tenants_name_is_never_read_as_sql(two: OpenStore, tenant_id: str) -> None:
    async with two.store.reading(tenant_id) as connection:
        said = await connection.execute(text("SELECT current_setting('sluice.tenant')"))
        assert said.scalar() == tenant_id
        assert (await connection.execute(text("SELECT 1 FROM tenants"))).all() == []


@pytest.mark.deep(stands_in="test_a_transaction_acts_for_its_tenant_alone_and_ends_with_its_reader")
async def test_connections_return_outside_any_transaction(two: OpenStore) -> None:
    """Readers that are cancelled at any point leave no transaction behind."""
    for pause in range(40):
        task = asyncio.ensure_future(_read_slowly(two.store))
        await asyncio.sleep(pause / 2000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await sql(two.url, IN_TRANSACTION) == [(0,)]
    for tenant_id in (TENANT, OTHER):
        assert await seen(two.store, "tenants", tenant_id) == {tenant_id}


async def _read_slowly(store: Store) -> None:
    async with store.reading(OTHER) as connection:
        for _ in range(3):
            await connection.execute(text("SELECT pg_sleep(0.005)"))
