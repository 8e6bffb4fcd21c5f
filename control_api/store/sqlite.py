"""SQLite: one file, one writer. Knows how it is opened so that what is committed stays.

WAL with `synchronous=FULL`: a commit is on the disk before it returns, and readers never wait for
the writer. One asyncio lock orders the writers of this process; `BEGIN IMMEDIATE` orders them with
other processes.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from control_api.store.connection_errors import translate_error
from control_api.store.schema.version import upgrade_to_head
from control_api.store.url import UnusableDatabase

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""How long a writer waits for another process's transaction."""
CHECKPOINT_PAGES = 4000
"""16 MiB of WAL before it is copied into the file: most pages that a batch touches are those of the
batch before, and are copied once instead of many times."""
CACHE_KIB = 16 * 1024
"""Of a writer: a block of entries is still there when it is indexed."""
READERS = 4
NO_VALUES: dict[str, Any] = {"hide_parameters": True}
"""Of an engine: the values in a statement are callers' own, and an error may reach a log."""


class SqliteDatabase:
    """One lane: what tenants write at the same time goes into one transaction and one sync."""

    def __init__(self, url: URL) -> None:
        pool: dict[str, Any] = {"connect_args": _CONNECT, "max_overflow": 0, **NO_VALUES}
        blocking = url.set(drivername="sqlite")
        self._batches = create_engine(blocking, pool_size=1, **pool)
        self._writer = create_async_engine(url, pool_size=1, **pool)
        self._readers = create_async_engine(url, pool_size=READERS, **pool)
        _begins(self._batches, "BEGIN IMMEDIATE", _durable)
        _begins(self._writer.sync_engine, "BEGIN IMMEDIATE", _durable)
        _begins(self._readers.sync_engine, "BEGIN", _read_only)
        # What needs no await runs here, a whole transaction at a time: through the event loop each
        # statement would cost two turns of it, together more than the inserts.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-writer")
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, url: URL) -> "SqliteDatabase":
        """Brings the schema to head first; makes the file if there is none."""
        try:
            make_file(Path(url.database or ""))
            await asyncio.get_running_loop().run_in_executor(None, migrate, url)
        except Exception as error:
            if (known := translate_error(error, url)) is None:
                raise
            raise known from error
        return cls(url)

    def lane(self, tenant_id: str) -> str:  # noqa: ARG002  every tenant's
        return ""

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        return self._readers.connect()

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._readers.connect()

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        return self._readers.connect()

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        return self.reading(tenant_id)

    @asynccontextmanager
    async def writing(self, lane: str) -> AsyncIterator[AsyncConnection]:  # noqa: ARG002
        async with self._lock, self._writer.begin() as connection:
            yield connection

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:  # noqa: ARG002
        async with self._lock:
            loop = asyncio.get_running_loop()
            done = loop.run_in_executor(self._thread, self._transact, work)
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                # The thread goes on, and the lock is its; the next writer waits for it.
                await asyncio.wait([done])
                raise

    @property
    def autocommit(self) -> None:
        return None

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self._batches.begin() as connection:
            return work(connection)

    async def close(self) -> None:
        await self._readers.dispose()
        await self._writer.dispose()
        loop = asyncio.get_running_loop()
        # Last: the connection that closes last folds the WAL into the file.
        await loop.run_in_executor(self._thread, self._batches.dispose)
        self._thread.shutdown()


_CONNECT = {"timeout": BUSY_SECONDS, "isolation_level": None}  # we say BEGIN ourselves


def make_file(path: Path) -> None:
    """An empty file that only its owner may read, in a folder that only its owner may enter; SQLite
    gives the WAL beside it the same mode. What is there already keeps its mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def migrate(url: URL) -> None:
    """The schema to head, by a connection of its own: changing a table needs foreign keys off."""
    engine = create_engine(url.set(drivername="sqlite"), connect_args=_CONNECT, **NO_VALUES)
    _begins(engine, "BEGIN IMMEDIATE", _write_ahead)
    try:
        with engine.begin() as connection:
            upgrade_to_head(connection)
    finally:
        engine.dispose()


def _begins(engine: Engine, begin: str, prepare: Callable[[Any], None]) -> None:
    def connected(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        prepare(cursor)
        cursor.close()

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))


def _write_ahead(cursor: Any) -> None:
    cursor.execute("PRAGMA journal_mode=WAL")
    (mode,) = cursor.fetchone()
    if mode != "wal":
        raise UnusableDatabase(
            f"SQLite keeps its journal in mode `{mode}` on this file system, not `wal`"
        )
    cursor.execute("PRAGMA synchronous=FULL")


def _durable(cursor: Any) -> None:
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA trusted_schema=OFF")
    cursor.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    cursor.execute(f"PRAGMA cache_size=-{CACHE_KIB}")


def _read_only(cursor: Any) -> None:
    cursor.execute("PRAGMA query_only=ON")
    cursor.execute("PRAGMA trusted_schema=OFF")
