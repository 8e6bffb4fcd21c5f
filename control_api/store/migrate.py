"""`sluice migrate`: the schema of the database at a URL, brought to head. Knows no table."""

import asyncio
from pathlib import Path

from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from control_api.store import sqlite
from control_api.store.postgresql_role import grant
from control_api.store.schema_version import to_head
from control_api.store.url import parse


async def migrate(url: str, service_url: str | None = None) -> None:
    """In one transaction: a migration that fails leaves the schema as it was. The role of
    `service_url`, where that is another than the owner's, is granted what the service needs.
    `Unusable` where a URL can't be used, or the schema is newer than this version knows."""
    parsed = parse(url)
    role = None if service_url is None else parse(service_url).username
    if parsed.get_backend_name() == "sqlite":
        sqlite.make_file(Path(parsed.database or ""))
        await asyncio.get_running_loop().run_in_executor(None, sqlite.migrate, parsed)
        return
    engine = create_async_engine(parsed, poolclass=NullPool, hide_parameters=True)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(to_head)
            if role is not None:
                await connection.run_sync(grant, role)
    finally:
        await engine.dispose()
