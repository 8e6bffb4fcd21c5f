"""Opens a database only to read it: without an upgrade, without the checks of a start, and without
a write of any kind. For `sluice verify --database`, which also examines what the service refuses,
and for processes beside a service.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import aiosqlite
from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from control_api.database_limits import LIMITS, DatabaseLimits
from control_api.store.connection_errors import translate_error
from control_api.store.database import Database
from control_api.store.errors import WriteFault
from control_api.store.postgresql import hosts
from control_api.store.postgresql.engine import PostgresqlDatabase
from control_api.store.sqlite import SqliteDatabase
from control_api.store.store import Store
from control_api.store.url import UnusableDatabase, parse_url
from policies.ground.clock import Clock

T = TypeVar("T")


async def open_read_only(url: str, clock: Clock) -> Store:
    """The store at `url`, for reading. Raises `UnusableDatabase` or `DatabaseUnreachable`."""
    parsed = parse_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    database: Database = ReadOnlySqlite(parsed) if is_sqlite else _postgresql(parsed)
    try:
        async with database.reading_all_tenants():
            pass
    except Exception as error:
        await database.close()
        if (known := translate_error(error, parsed)) is None:
            raise
        raise known from error
    # Only writes use the group, and there are none: it is never entered.
    return Store(database, clock, asyncio.TaskGroup())


async def open_beside(url: str, limits: DatabaseLimits, clock: Clock) -> Store:
    """The store of a service that runs, for a process of its own: to read, over one connection on
    PostgreSQL. The service has checked it, and upgraded it. Raises `UnusableDatabase` if the URL
    can't be read."""
    parsed = parse_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    # Not `ReadOnlySqlite`, which takes a file without a WAL for one that does not change.
    database: Database = SqliteDatabase(parsed) if is_sqlite else _postgresql(parsed, limits)
    return Store(database, clock, asyncio.TaskGroup())


def _postgresql(url: URL, limits: DatabaseLimits = LIMITS) -> PostgresqlDatabase:
    engine = create_async_engine(
        url,
        isolation_level="AUTOCOMMIT",  # as `PostgresqlDatabase.open` makes it
        pool_size=1,
        max_overflow=0,
        hide_parameters=True,
        connect_args=limits.of_connection(),
    )
    hosts.listen(engine, url)
    return PostgresqlDatabase(engine, limits)


class ReadOnlySqlite:
    """A SQLite file, or a copy of one. Every write fails."""

    def __init__(self, url: URL) -> None:
        path = Path(url.database or "")
        if not path.is_file():
            raise UnusableDatabase(f"`{path}` does not exist, or is not a file")
        # Without a WAL beside it, no service has the file open, and it is read as it is: SQLite
        # would otherwise create a WAL's index beside it, which fails where a copy can't be written.
        wal = path.with_name(f"{path.name}-wal")
        quiet = not wal.exists() or not wal.stat().st_size
        source = f"file:{quote(str(path.absolute()))}?mode=ro" + "&immutable=1" * quiet

        async def connect() -> aiosqlite.Connection:
            return await aiosqlite.connect(source, uri=True, isolation_level=None)

        self._engine = create_async_engine(
            url, async_creator=connect, pool_size=2, hide_parameters=True
        )

    def lane(self, tenant_id: str) -> str:  # noqa: ARG002
        return ""

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        return self._engine.connect()

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._engine.connect()

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        return self._engine.connect()

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        return self.reading(tenant_id)

    async def run_reading(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        async with self.reading(tenant_id) as connection:
            return await connection.run_sync(work)

    async def run_snapshot(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        return await self.run_reading(tenant_id, work)

    def writing(self, lane: str) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        raise WriteFault

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:  # noqa: ARG002
        raise WriteFault

    @property
    def autocommit(self) -> None:
        return None

    async def fold(self) -> bool:
        return True  # this connection deletes nothing

    async def close(self) -> None:
        await self._engine.dispose()
