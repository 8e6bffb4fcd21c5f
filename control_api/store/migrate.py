"""`sluice migrate`: upgrades the schema of the database at a URL. Knows no table."""

import asyncio
from functools import partial
from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from control_api.database_limits import POOL_SECONDS
from control_api.store import sqlite
from control_api.store.connection_errors import translate_error
from control_api.store.postgresql import hosts, large_indexes
from control_api.store.postgresql.engine import connected
from control_api.store.postgresql.role import grant_privileges
from control_api.store.schema.version import Migration, upgrade_to_head
from control_api.store.url import UnusableDatabase, parse_url


async def migrate(url: str, service_url: str | None = None, *, finish: bool = False) -> Migration:
    """Applies every missing migration, then grants the role in `service_url` the privileges that
    the service needs, unless that role is the owner. With `finish`, older versions can't use the
    database from now on: PostgreSQL only. Returns what was done to the schema.

    All of this is one transaction: a failed migration leaves the schema as it was. Indexes of large
    tables follow on their own, without stopping a running service. Raises
    `UnusableDatabase` if a URL can't be used or the schema is newer than this version, and
    `DatabaseUnreachable` if the database may answer later.
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
    hosts.listen(engine, url)
    try:
        async with connected(engine) as connection, connection.begin():
            done = await connection.run_sync(partial(upgrade_to_head, finish=finish))
            if role is not None:
                await connection.run_sync(grant_privileges, role)
        # After the commit: if we die here, the next run builds them. Until then, lists of rare
        # kinds of entries are slow.
        async with connected(engine) as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await large_indexes.build(connection)
        return done
    finally:
        await engine.dispose()
