"""Upgrades the schema of the database at a URL (`sluice migrate`), and on PostgreSQL builds the
indexes of large tables after the migrations, while the service runs.

A transaction can't build these indexes without stopping every append meanwhile. Building can be
repeated: an index that exists stays, and one that a crash left unfinished is built again.
"""

import asyncio
from functools import partial
from pathlib import Path

from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from control_api.database_limits import POOL_SECONDS
from control_api.store import sqlite
from control_api.store.postgresql import engine as hosts
from control_api.store.postgresql.engine import connected, grant_privileges
from control_api.store.schema.version import Migration, upgrade_to_head
from control_api.store.url import UnusableDatabase, parse_url, translate_error

LARGE_INDEXES = {
    "ix_log_entries_rare_kinds": "log_entries (tenant_id, kind, seq)"
    " WHERE kind NOT IN ('decision', 'lineage')"
}


_INDEX_LOCK = 0x51D1CF  # the key of an advisory lock: of two replicas, one builds
_RETRY_SECONDS = 0.2


async def build_large_indexes(connection: AsyncConnection) -> None:
    """Build the indexes of large tables that are missing. The connection must be in autocommit
    mode."""
    # Polled: one that waits inside a statement holds a snapshot, for whose end the building of an
    # index waits in turn.
    while not (await connection.execute(_TAKE, {"lock": _INDEX_LOCK})).scalar():  # noqa: ASYNC110  # another process has it
        await asyncio.sleep(_RETRY_SECONDS)
    try:
        await _build_index(connection)
    finally:
        await connection.execute(_RELEASE, {"lock": _INDEX_LOCK})


async def _build_index(connection: AsyncConnection) -> None:
    for name, definition in LARGE_INDEXES.items():
        finished = (await connection.execute(_FINISHED, {"name": name})).scalar()
        # A role that owns nothing may run `sluice migrate` too, if there is nothing to do.
        if finished:
            continue
        if finished is False:
            await connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
        await connection.execute(
            text(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {definition}")
        )


_TAKE = text("SELECT pg_try_advisory_lock(:lock)")
_RELEASE = text("SELECT pg_advisory_unlock(:lock)")
_FINISHED = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")


async def migrate(url: str, service_url: str | None = None, *, finish: bool = False) -> Migration:
    """Apply every missing migration, then grant the role in `service_url` the privileges that the
    service needs, unless that role is the owner. With `finish`, older versions can't use the
    database from now on: PostgreSQL only. Returns the schema's revisions before and after.

    All of this is one transaction: a failed migration leaves the schema as it was. Indexes of large
    tables follow on their own, without stopping a running service. Raises `UnusableDatabase` if a
    URL can't be used or the schema is newer than this version, and `DatabaseUnreachable` if the
    database may answer later.
    """
    parsed = parse_url(url)
    role = None if service_url is None else parse_url(service_url).username
    try:
        return await _migrate(parsed, role, finish)
    except Exception as error:
        if (known := translate_error(error, parsed)) is None:
            raise
        raise known from error


async def _migrate(url: URL, role: str | None, finish: bool) -> Migration:
    if url.get_backend_name() == "sqlite":
        if finish:
            raise UnusableDatabase(
                "`--finish` is for PostgreSQL alone: in a SQLite file, this version writes nothing "
                "that older ones can't read. Run `sluice migrate` without it"
            )
        sqlite.make_file(Path(url.database or ""))
        return await asyncio.get_running_loop().run_in_executor(None, sqlite.migrate, url)
    engine = create_async_engine(
        url, poolclass=NullPool, hide_parameters=True, connect_args={"timeout": POOL_SECONDS}
    )
    hosts.connect_to_hosts(engine, url)
    try:
        async with connected(engine) as connection, connection.begin():
            done = await connection.run_sync(partial(upgrade_to_head, finish=finish))
            if role is not None:
                await connection.run_sync(grant_privileges, role)
        # After the commit: if we die here, the next run builds them. Until then, lists of rare
        # kinds of entries are slow.
        async with connected(engine) as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await build_large_indexes(connection)
        return done
    finally:
        await engine.dispose()
