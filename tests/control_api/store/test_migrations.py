"""The migrations produce the schema that the code expects; any other schema is refused."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Inspector, create_engine, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from control_api.store.migrate import migrate
from control_api.store.schema.tables import metadata
from control_api.store.schema.version import MIGRATIONS, READABLE_SINCE, head, revisions
from control_api.store.transaction import Transaction
from control_api.store.url import UnusableDatabase, parse_url
from tests.architecture.tree import ROOT
from tests.control_api.store.interleaving import after_statement
from tests.support.open_store import OTHER, TENANT, action, decision, opened, sql
from tests.support.postgres import unbound
from tests.support.waiting import until_async


async def within(url: str, ask: Any) -> Any:
    engine = create_async_engine(parse_url(url), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(ask)
    finally:
        await engine.dispose()


async def test_the_migrations_produce_the_schema(either_url: str) -> None:
    await migrate(either_url)
    await migrate(either_url)  # which changes nothing

    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    assert await within(either_url, differences) == []


def _ddl(connection: Connection) -> dict[str, str]:
    """The SQL that SQLite stores for each table and index, with its constraints and conditions."""
    query = text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    rows = connection.execute(query).all()
    return {name: " ".join(ddl.split()) for name, ddl in rows if name != "alembic_version"}


async def test_the_migrations_produce_the_schema_to_the_letter(sqlite_url: str) -> None:
    """`compare_metadata` ignores primary keys and the conditions of indexes."""
    await migrate(sqlite_url)
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        meant = _ddl(connection)
    engine.dispose()
    assert await within(sqlite_url, _ddl) == meant
    assert {columns[0] for _, columns in await within(sqlite_url, _keys)} == {"tenant_id"}


def test_every_key_of_the_code_s_tables_leads_with_the_tenant() -> None:
    for table in metadata.tables.values():
        keys = [
            list(table.primary_key),
            *(list(each.columns) for each in table.indexes if each.unique),
        ]
        keys += [list(each.columns) for each in table.foreign_key_constraints]
        assert {each[0].name for each in keys} == {"tenant_id"}, table.name


def _keys(connection: Connection) -> list[tuple[str, list[str | None]]]:
    inspector: Inspector = inspect(connection)
    found: list[tuple[str, list[str | None]]] = []
    for table in metadata.tables:
        found.append((table, list(inspector.get_pk_constraint(table)["constrained_columns"])))
        for index in inspector.get_indexes(table):
            if index["unique"]:
                found.append((table, index["column_names"]))
        for constraint in inspector.get_unique_constraints(table):
            found.append((table, list(constraint["column_names"])))
        for foreign in inspector.get_foreign_keys(table):
            assert foreign["constrained_columns"][0] == "tenant_id"
            assert foreign["referred_columns"][0] == "tenant_id"
    return found


@pytest.mark.deep(stands_in="test_the_migrations_produce_the_schema_to_the_letter")
async def test_every_key_leads_with_the_tenant(either_url: str) -> None:
    await migrate(either_url)
    found = await within(either_url, _keys)
    assert len(found) > len(metadata.tables)
    assert {columns[0] for _, columns in found} == {"tenant_id"}


AS_0_1_LEFT_IT = (
    "DROP TABLE count_checks",
    "DROP TABLE sidecar_owners",
    "ALTER TABLE api_keys DROP COLUMN former_agents",
    "ALTER TABLE api_keys DROP COLUMN agent_ids",
    "ALTER TABLE api_keys DROP COLUMN sidecar_ids",
    "DROP TABLE console_sessions",
    "DROP TABLE sign_in_links",
    "DROP TABLE export_positions",
    "DROP TABLE candidate_counts",
    "ALTER TABLE log_heads DROP COLUMN candidates",
    "ALTER TABLE tenants DROP COLUMN candidates",
    "DROP TABLE guardrails",
    "DROP TABLE impact_runs",
    "DROP TABLE impact_policies",
    "DROP TABLE checkpoints",
    "DROP TABLE tree_nodes",
    "DROP TABLE incarnations",
    "DROP TABLE cited_documents",
    "DROP TABLE holds",
    "DROP TABLE acknowledgements",
    "DROP TABLE self_checks",
    "DROP INDEX ix_log_entries_rare_kinds",
    "ALTER TABLE log_index DROP COLUMN more",
    "DROP TABLE enrolled_keys",
    "DROP INDEX ux_agents_workload",
    "ALTER TABLE agents DROP COLUMN workload",
    "ALTER TABLE agents DROP COLUMN enrolment",
    "ALTER TABLE sidecars DROP COLUMN workload",
    "ALTER TABLE sidecars DROP COLUMN enrolled_until",
    "ALTER TABLE sidecars DROP COLUMN forked",
    "ALTER TABLE sidecars DROP COLUMN source_levels",
    "UPDATE alembic_version SET version_num = '0007'",
)
WAITING = (
    "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database "
    "WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
)
KEPT = (
    "SELECT * FROM tallies ORDER BY tenant_id, facet, value, bucket",
    "SELECT * FROM first_accesses ORDER BY tenant_id, agent_role, source_id",
    "SELECT * FROM set_nodes ORDER BY tenant_id, node",
    "SELECT tenant_id, seq, entry, hash FROM log_entries ORDER BY tenant_id, seq",
    "SELECT * FROM documents ORDER BY tenant_id, name",
    "SELECT tenant_id, revision, retention_days, reset_below FROM tenants ORDER BY tenant_id",
)


async def test_rows_of_the_previous_version_are_kept(sqlite_url: str) -> None:
    """Decisions and documents of two tenants, with their counts and maps."""
    await upgrade_from_0_1(sqlite_url)


@pytest.mark.deep(stands_in="test_rows_of_the_previous_version_are_kept")
async def test_either_database_keeps_rows_of_the_previous_version_and_counts_on(
    either_url: str,
) -> None:
    await upgrade_from_0_1(either_url)
    async with opened(either_url) as world:
        await world.log.append(OTHER, decision(source_type="sdk"))
        query = "SELECT allowed FROM tallies WHERE tenant_id = :tenant AND facet = 0"
        assert await world.rows(query, tenant=OTHER) == [(2,)]


async def upgrade_from_0_1(url: str) -> None:
    async with opened(url) as world:
        for number in range(12):
            made = decision(
                "DENY" if number % 3 == 0 else "ALLOW",
                policy_name="session_agent_mismatch" if number % 6 == 0 else "p",
                agent_id=(None, "a1", "a2")[number % 3],
                session_id=(None, "s1")[number % 2],
                source_id=f"source-{number % 5}",
            )
            await world.log.append(TENANT, made)
        placed = await world.log.append(OTHER, record := decision(source_type="sdk"))
        await world.log.append(OTHER, action(record.eid, placed.leaf_hash, 1))
        for tenant_id in (TENANT, OTHER):
            changed = {f"role/{number}": b"%d" % number for number in range(7)}
            await world.store.write(tenant_id, partial(Transaction.publish, changed=changed))
    written = [await sql(url, query) for query in KEPT]
    assert all({row[0] for row in rows} == {TENANT, OTHER} for rows in written)
    for statement in AS_0_1_LEFT_IT:
        await sql(url, statement)
    await migrate(unbound(url), url)
    assert [await sql(url, query) for query in KEPT] == written


@pytest.mark.deep(stands_in="test_the_migrations_produce_the_schema")
async def test_migrating_again_changes_nothing(either_url: str) -> None:
    await migrate(either_url)
    await migrate(either_url)
    async with opened(either_url):
        pass


async def test_finishing_a_migration_of_sqlite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableDatabase, match="`--finish` is for PostgreSQL alone"):
        await migrate(f"sqlite:///{tmp_path}/new.db", finish=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.deep(stands_in="test_migrations_wait_for_each_other")
async def test_two_replicas_may_migrate_at_once(postgres_url: str) -> None:
    await asyncio.gather(*(migrate(postgres_url) for _ in range(4)))
    async with opened(postgres_url):
        pass


def test_a_migrations_file_name_begins_with_its_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    known = ScriptDirectory.from_config(config).walk_revisions()
    assert [each.revision for each in known] == revisions()[::-1]


OPENED = """
import asyncio, sys
from tests.support.open_store import opened

async def open_and_close():
    async with opened(sys.argv[1]):
        pass

asyncio.run(open_and_close())
sys.exit("alembic" in sys.modules)
"""


async def test_migrations_wait_for_each_other(migrated_url: str) -> None:
    """Without the lock, two replicas would both see the tables that are missing."""
    for statement in AS_0_1_LEFT_IT:
        await sql(migrated_url, statement)

    async def waits() -> bool:
        return await sql(migrated_url, WAITING) == [(1,)]

    with after_statement("pg_advisory_xact_lock", lambda: until_async("the other waits", waits)):
        await asyncio.gather(migrate(migrated_url), migrate(migrated_url))
    assert await sql(migrated_url, "SELECT version_num FROM alembic_version") == [(head(),)]


async def test_a_start_on_the_newest_schema_needs_no_alembic(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does any module import it at its top."""
    importing = {
        file.name
        for file in (ROOT / "control_api").rglob("*.py")
        if re.search(r"^(import|from) alembic", file.read_text("utf-8"), re.M)
        and file.parent.name != "versions"
    }
    assert importing == {"env.py"}  # which alembic itself runs
    await migrate(sqlite_url)
    for name in [each for each in sys.modules if each.partition(".")[0] == "alembic"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "alembic", None)  # so that no import finds it
    await opening(sqlite_url)


@pytest.mark.deep(stands_in="test_a_start_on_the_newest_schema_needs_no_alembic")
async def test_alembic_is_imported_only_to_migrate(either_url: str) -> None:
    """The import takes a fifth of a start."""
    await migrate(either_url)
    done = subprocess.run([sys.executable, "-c", OPENED, either_url], check=False)
    assert done.returncode == 0


async def test_opening_sqlite_upgrades_its_schema(sqlite_url: str) -> None:
    async with opened(sqlite_url) as world:
        assert await world.rows("SELECT version_num FROM alembic_version") == [(head(),)]


async def test_postgresql_without_a_schema_is_refused(postgres_url: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await opening(postgres_url)
    assert caught.group_contains(UnusableDatabase, match="has no schema yet.*run `sluice migrate`")


async def test_an_older_postgresql_schema_is_refused(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(postgres_url)
    monkeypatch.setattr("control_api.store.schema.version.head", lambda: "0099")
    with pytest.raises(BaseExceptionGroup) as caught:
        await opening(postgres_url)
    assert caught.group_contains(
        UnusableDatabase, match="`[0-9]{4}`, and this version needs `0099`"
    )


@pytest.mark.deep(
    stands_in="test_a_newer_schema_that_dropped_something_this_version_uses_is_refused"
)
async def test_a_newer_schema_is_refused(either_url: str) -> None:
    await migrate(either_url)
    await sql(either_url, "UPDATE alembic_version SET version_num = '9999'")
    await mark(either_url, None)
    with pytest.raises(BaseExceptionGroup) as caught:
        await opening(either_url)
    assert caught.group_contains(
        UnusableDatabase, match="`9999`, which is newer than this version knows"
    )
    with pytest.raises(UnusableDatabase):
        await migrate(either_url)


@pytest.mark.deep(
    stands_in="test_a_newer_schema_that_dropped_something_this_version_uses_is_refused"
)
async def test_a_newer_schema_that_keeps_everything_this_version_uses_is_accepted(
    either_url: str,
) -> None:
    """An upgrade is rolled back: the tables have more than this version knows."""
    await migrate(either_url)
    await sql(either_url, "ALTER TABLE agents ADD COLUMN of_the_future TEXT")
    await sql(either_url, "UPDATE alembic_version SET version_num = '9999'")
    await mark(either_url, int(head()))
    async with opened(either_url) as world:
        assert await world.rows("SELECT version_num FROM alembic_version") == [("9999",)]
    # Nor does this version's `sluice migrate` undo anything.
    await migrate(either_url)
    assert await within(either_url, columns) > {"of_the_future"}


async def test_a_newer_schema_that_dropped_something_this_version_uses_is_refused(
    either_url: str,
) -> None:
    await migrate(either_url)
    await sql(either_url, "UPDATE alembic_version SET version_num = '9999'")
    await mark(either_url, int(head()))
    await opening(either_url)  # nothing was dropped
    await migrate(either_url)
    for since in (int(head()) + 1, None):
        await mark(either_url, since)
        with pytest.raises(BaseExceptionGroup) as caught:
            await opening(either_url)
        assert caught.group_contains(UnusableDatabase, match="newer than this version knows")
        with pytest.raises(UnusableDatabase):
            await migrate(either_url)


async def test_a_schema_between_two_releases_is_refused_with_the_remedy(either_url: str) -> None:
    """Only development versions made such; the mark, which is older, doesn't admit it."""
    await migrate(either_url)
    await mark(either_url, int(READABLE_SINCE))
    for between, after in (("0013", "0019"), ("0003", "0007")):
        await sql(either_url, f"UPDATE alembic_version SET version_num = '{between}'")
        said = f"`{between}`, which was never released: first run .* has both .* and `{after}`"
        with pytest.raises(BaseExceptionGroup) as caught:
            await opening(either_url)
        assert caught.group_contains(UnusableDatabase, match=said)
        with pytest.raises(UnusableDatabase, match=said):
            await migrate(either_url)


async def mark(url: str, revision: int | None) -> None:
    """Say, as a later version would, which revision's code the tables still serve."""
    if "sqlite" in url:
        await sql(url, f"PRAGMA user_version = {revision or 0}")
    else:
        text = "NULL" if revision is None else f"'readable since {revision:04}'"
        await sql(url, f"COMMENT ON TABLE alembic_version IS {text}")


def columns(connection: Connection) -> set[str]:
    return {column["name"] for column in inspect(connection).get_columns("agents")}


async def opening(url: str) -> None:
    async with opened(url):
        pass
