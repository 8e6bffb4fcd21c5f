"""PostgreSQL: a lane for each tenant. Knows its pool, its time limits, and how a lane is locked.

Within this process a lane's writers wait for each other here, without holding a connection; between
processes they wait for the row that they lock first (`control_api.store.transaction`). Row-level
security is a second wall behind every query's own `tenant_id` (`postgresql_transaction`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from control_api.database_limits import LIMITS, POOL_SECONDS, DatabaseLimits
from control_api.store.connection_errors import translate_error
from control_api.store.postgresql import transaction as begin
from control_api.store.postgresql.role import bound, granted
from control_api.store.postgresql.transaction import ALL_TENANTS, Connections
from control_api.store.schema.version import require_head
from control_api.store.url import UnusableDatabase

T = TypeVar("T")


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """The engine's first connection; `UnusableDatabase` where the driver does not know a parameter
    of the
    URL, or its host can't be a name."""
    try:
        connection = await engine.connect().start()
    except (TypeError, ValueError) as error:
        if isinstance(error, OSError):
            raise  # an unverified certificate, which Python makes a `ValueError` too
        # The error may repeat a parameter's value: it is not shown.
        raise UnusableDatabase(
            "its host or its parameters can't be used: after `?` stand arguments of asyncpg's "
            "`connect`, such as `ssl=verify-full`"
        ) from error
    try:
        yield connection
    finally:
        await connection.close()


class PostgresqlDatabase:
    """Of another's schema: it refuses an older one, which `sluice migrate` brings to head."""

    def __init__(self, engine: AsyncEngine, limits: DatabaseLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._connections = Connections(engine)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def open(cls, url: URL, limits: DatabaseLimits = LIMITS) -> "PostgresqlDatabase":
        engine = create_async_engine(
            url,
            isolation_level="AUTOCOMMIT",  # we say BEGIN ourselves
            pool_size=limits.connections,
            max_overflow=0,
            pool_timeout=POOL_SECONDS,
            hide_parameters=True,  # values are callers' own, and an error may reach a log
            connect_args={"server_settings": limits.of_session(), **limits.of_driver()},
        )
        try:
            async with connected(engine) as connection:
                await bound(connection)
                await granted(connection)
                await connection.run_sync(require_head)
        except BaseException as error:
            await engine.dispose()
            if (known := translate_error(error, url)) is None:
                raise
            raise known from error
        return cls(engine, limits)

    def lane(self, tenant_id: str) -> str:
        return tenant_id

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._connections.transaction(begin.reading(tenant_id))

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._connections.transaction(begin.reading(ALL_TENANTS))

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._connections.transaction(begin.reading("", digest))

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._connections.transaction(begin.snapshot(tenant_id))

    @asynccontextmanager
    async def writing(self, lane: str) -> AsyncIterator[AsyncConnection]:
        async with (
            self._lock(lane),
            self._connections.transaction(
                begin.writing(lane, self._limits.silent_seconds)
            ) as connection,
        ):
            yield connection

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:
        async with self.writing(lane) as connection:
            return await connection.run_sync(work)

    async def autocommit(self, lane: str, statement: str, values: tuple[Any, ...]) -> bool:
        async with self._lock(lane):
            return await self._connections.autocommit(lane, statement, values)

    def _lock(self, lane: str) -> asyncio.Lock:
        # Kept only while someone holds or awaits it: there may be any number of tenants.
        lock = self._locks.get(lane)
        if lock is None:
            lock = self._locks[lane] = asyncio.Lock()
        return lock

    async def close(self) -> None:
        await self._engine.dispose()
