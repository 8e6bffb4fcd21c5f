"""Opens a database that may not be up yet, since a container often starts before its database:
retries until a deadline, and logs each distinct cause once. Can also open one only to read it,
without an upgrade, a check or a write of any kind: for `sluice verify --database`, which also
examines databases that the service refuses, and for processes beside a service."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import aiosqlite
from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from control_api.database_limits import LIMITS, DatabaseLimits
from control_api.settings import Settings
from control_api.store.database import Database
from control_api.store.errors import ReadFault, WriteFault
from control_api.store.postgresql import engine as hosts
from control_api.store.postgresql.engine import PostgresqlDatabase
from control_api.store.sqlite import SqliteDatabase, SqliteReads
from control_api.store.store import Store
from control_api.store.url import DatabaseUnreachable, UnusableDatabase, parse_url, translate_error
from policies.ground.clock import Clock

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
_log = logging.getLogger("sluice.store")


async def open_with_retry(
    attempt: Callable[[], Awaitable[T]],
    setting: str,
    seconds: float,
    monotonic: Callable[[], float],
    stop: asyncio.Event,
) -> T | None:
    """Return `attempt()`, retried for `seconds` while it raises `DatabaseUnreachable`.

    Returns None if `stop` is set first. Raises the last `DatabaseUnreachable` at the deadline, and
    `UnusableDatabase` at once. Both messages begin with the name of the `setting`.
    """
    deadline, pause = monotonic() + seconds, FIRST_PAUSE
    logged: set[str] = set()
    while not stop.is_set():
        try:
            return await attempt()
        except UnusableDatabase as error:
            # Waiting can't fix it, for example a file that is not a database.
            raise UnusableDatabase(f"{setting}: {error}") from error
        except DatabaseUnreachable as error:
            left = deadline - monotonic()
            if left <= 0:
                raise DatabaseUnreachable(f"{setting}: {error}") from error
            if str(error) not in logged:  # a line every two seconds would fill the log
                logged.add(str(error))
                _log.warning("%s: %s; trying again for %.0f s", setting, error, left)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)
    return None


@asynccontextmanager
async def opened_store(
    settings: Settings, clock: Clock, stop: asyncio.Event
) -> AsyncIterator[Store | None]:
    """Open the store of `settings`, with retries, and close it at the end. Yields None if `stop` is
    set first. The tasks on `Store.group` belong to this context: it ends if one of them fails."""
    store: Store | None = None
    try:
        async with asyncio.TaskGroup() as group:
            store = await open_with_retry(
                partial(Store.open, settings.database_url, clock, group, settings.database),
                settings.database_setting,
                settings.start_seconds,
                clock.monotonic,
                stop,
            )
            yield store
    finally:
        # The task group has ended, so no write is under way.
        if store is not None:
            await store.close()


@asynccontextmanager
async def command_store(settings: Settings, clock: Clock) -> AsyncIterator[Store]:
    """Open the store of `settings` for a command; nothing stops it while it waits for the
    database."""
    async with opened_store(settings, clock, asyncio.Event()) as store:
        assert store is not None  # the stop event is never set
        yield store


@asynccontextmanager
async def explain_startup_faults(settings: Settings) -> AsyncIterator[None]:
    """Translate a database fault during start-up work on an open database into
    `DatabaseUnreachable` or `UnusableDatabase`, with its cause and the name of the setting."""
    try:
        yield
    except (ReadFault, WriteFault) as error:
        # The service stops on this error, so the operator needs the driver's reason, not the 503
        # that a request would get.
        cause, url = error.__cause__ or error, parse_url(settings.database_url)
        known = translate_error(cause, url) or DatabaseUnreachable(str(error))
        raise type(known)(f"{settings.database_setting}: {known}") from error


async def open_read_only(url: str, clock: Clock) -> Store:
    """Open the store at `url` for reading. Raises `UnusableDatabase` or `DatabaseUnreachable`."""
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
    """Open the store of a running service for another process that only reads, over one connection
    on PostgreSQL. The service has checked and upgraded the database already. Raises
    `UnusableDatabase` if the URL can't be read."""
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
    hosts.connect_to_hosts(engine, url)
    return PostgresqlDatabase(engine, limits)


class ReadOnlySqlite(SqliteReads):
    """A SQLite file, or a copy of one, opened only for reading. Every write fails."""

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

        self._readers = create_async_engine(
            url, async_creator=connect, pool_size=2, hide_parameters=True
        )

    def writing(self, lane: str) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        raise WriteFault

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:  # noqa: ARG002
        raise WriteFault

    async def fold(self) -> bool:
        return True  # this connection deletes nothing

    async def close(self) -> None:
        await self._readers.dispose()
