"""The store's database in SQLite: one file, one writer.

WAL with `synchronous=FULL`: a commit is on disk before it returns, and readers never wait for the
writer. One asyncio lock orders the writers of this process; `BEGIN IMMEDIATE` orders them with
other processes. See https://www.sqlite.org/wal.html.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from control_api.store.errors import is_fault
from control_api.store.schema.version import Migration, upgrade_to_head
from control_api.store.url import UnusableDatabase, translate_error

PAUSE_SECONDS = 60.0
"""The shortest time in seconds between two log lines about failing writes. A disk that is nearly
full accepts one write and not the next, which would otherwise fill the log."""
_log = logging.getLogger("sluice.store")


class WriteOutage:
    """Logs when writes to the database at `url` begin to fail, and when they work again. Wrap each
    write in `with`, on the event loop. Its log lines name the database and the cause, such as a
    full disk, which callers are not told."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._ongoing = False
        self._logged_at = float("-inf")

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self._ended()
        elif is_fault(error):
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        now = asyncio.get_running_loop().time()
        if self._ongoing or now - self._logged_at < PAUSE_SECONDS:
            return
        self._ongoing, self._logged_at = True, now
        _log.error("writes to the database fail: %s", translate_error(error, self._url) or error)

    def _ended(self) -> None:
        if self._ongoing:
            _log.warning("recovered: `%s` takes writes again", self._url.database)
        self._ongoing = False


T = TypeVar("T")

BUSY_SECONDS = 5.0
"""Seconds that a writer waits for another process's transaction to end."""
CHECKPOINT_PAGES = 4000
"""The number of WAL pages (16 MiB) after which SQLite copies them into the file. Most pages that a
batch changes were also changed by the batch before, so copying late copies them once instead of
many times."""
CACHE_KIB = 16 * 1024
"""The size of a writer's page cache in KiB: large enough that a block of entries is still cached
when it is indexed."""
FOLD_MILLISECONDS = 50
"""Milliseconds that folding the WAL into the file waits for readers, while writers wait for it."""
READERS = 4
"""The most connections that read at the same time."""
NO_VALUES: dict[str, Any] = {"hide_parameters": True}
"""The engine option that keeps a statement's values out of error messages. The values belong to
callers, and errors may reach a log."""


class SqliteReads:
    """The reading half of a SQLite database: every transaction sees one state, and the rows of all
    tenants. All tenants share one lane."""

    autocommit = None
    _readers: AsyncEngine

    def lane(self, tenant_id: str) -> str:  # noqa: ARG002  one lane for all
        return ""

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        return self._readers.connect()  # closing it rolls back, and there is nothing to commit

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._readers.connect()

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:  # noqa: ARG002
        return self._readers.connect()

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        return self.reading(tenant_id)

    async def run_reading(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        async with self.reading(tenant_id) as connection:
            return await connection.run_sync(work)

    async def run_snapshot(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        return await self.run_reading(tenant_id, work)


class SqliteDatabase(SqliteReads):
    """A SQLite database. All tenants share one lane, so writes that arrive together share one
    transaction and one sync."""

    def __init__(self, url: URL) -> None:
        # Two engines each: `run` and `run_reading` work in threads, `writing` and `reading` on the
        # event loop. The writer's have one connection, and `_lock` lets one of them write at a
        # time.
        pool: dict[str, Any] = {"connect_args": _CONNECT, "max_overflow": 0, **NO_VALUES}
        blocking = url.set(drivername="sqlite")
        self._path = url.database or ""
        self._batches = create_engine(blocking, pool_size=1, **pool)
        self._writer = create_async_engine(url, pool_size=1, **pool)
        self._readers = create_async_engine(url, pool_size=READERS, **pool)
        self._pages = create_engine(blocking, pool_size=READERS, **pool)
        # A plain BEGIN would take the write lock only at the first write, and fail there if another
        # process has written since the transaction's first read.
        _configure(self._batches, "BEGIN IMMEDIATE", _set_up_writer)
        _configure(self._writer.sync_engine, "BEGIN IMMEDIATE", _set_up_writer)
        _configure(self._readers.sync_engine, "BEGIN", _set_up_reader)
        _configure(self._pages, "BEGIN", _set_up_reader)
        # Work without an await runs in this thread, one transaction at a time. Through the event
        # loop, each statement would cost two of the loop's turns, together more than the inserts.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-writer")
        self._read_threads = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-reader")
        self._lock = asyncio.Lock()
        self._outage = WriteOutage(url)

    @classmethod
    async def open(cls, url: URL) -> "SqliteDatabase":
        """Open the file; create it if it does not exist, and upgrade the schema. Raises
        `UnusableDatabase` or `DatabaseUnreachable` if that fails."""
        try:
            make_file(Path(url.database or ""))
            # In a thread, since a migration would block the event loop.
            await asyncio.get_running_loop().run_in_executor(None, migrate, url)
        except Exception as error:
            if (known := translate_error(error, url)) is None:
                raise
            raise known from error
        return cls(url)

    async def run_reading(self, tenant_id: str, work: Callable[[Connection], T]) -> T:  # noqa: ARG002
        # If the caller is cancelled, the thread reads to the end and returns its connection.
        return await asyncio.get_running_loop().run_in_executor(
            self._read_threads, self._read, work
        )

    @asynccontextmanager
    async def writing(self, lane: str) -> AsyncIterator[AsyncConnection]:  # noqa: ARG002
        async with self._lock:
            with self._outage:
                async with self._writer.begin() as connection:
                    yield connection

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:  # noqa: ARG002
        async with self._lock:
            loop = asyncio.get_running_loop()
            done = loop.run_in_executor(self._thread, self._transact, work)
            try:
                with self._outage:
                    return await asyncio.shield(done)
            except asyncio.CancelledError:
                # The thread can't be cancelled. Keep the lock until its transaction has ended, so
                # that the next writer waits for that.
                await asyncio.wait([done])
                raise

    async def fold(self) -> bool:
        loop = asyncio.get_running_loop()
        # Copy without the lock first: writers go on meanwhile, and find little left to wait for.
        await loop.run_in_executor(None, self._copy_wal)
        async with self._lock:
            return await asyncio.shield(loop.run_in_executor(self._thread, self._truncate_wal))

    def _copy_wal(self) -> None:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS)
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            connection.close()

    def _truncate_wal(self) -> bool:
        with self._batches.connect() as connection:
            cursor = connection.connection.cursor()
            try:
                # A reader may still need the WAL: come back later instead of holding up writers.
                cursor.execute(f"PRAGMA busy_timeout={FOLD_MILLISECONDS}")
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                answer = cursor.fetchone()
                return answer is not None and not answer[0]  # the first column: busy
            finally:
                cursor.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
                cursor.close()

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._pages.connect() as connection:
            return work(connection)  # leaving the block rolls back, and there is nothing to commit

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self._batches.begin() as connection:
            return work(connection)

    async def close(self) -> None:
        await self._readers.dispose()
        await self._writer.dispose()
        loop = asyncio.get_running_loop()
        # Waits for reads whose caller was cancelled.
        await loop.run_in_executor(None, self._read_threads.shutdown)
        self._pages.dispose()
        # The writer's comes last: the last connection to close copies the WAL into the file.
        await loop.run_in_executor(self._thread, self._batches.dispose)
        self._thread.shutdown()


# `isolation_level: None` stops the driver from beginning transactions: `_configure` sends BEGIN.
_CONNECT = {"timeout": BUSY_SECONDS, "isolation_level": None}


def make_file(path: Path) -> None:
    """Create an empty file that only its owner can read, in a folder that only its owner can enter.
    SQLite gives the WAL the mode of the file. An existing file or folder keeps its mode."""
    # Create it before SQLite does: SQLite would give it the mode that the umask allows.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def migrate(url: URL) -> Migration:
    """Upgrade the schema on a connection of its own, because foreign keys must be off while a table
    is altered."""
    engine = create_engine(url.set(drivername="sqlite"), connect_args=_CONNECT, **NO_VALUES)
    _configure(engine, "BEGIN IMMEDIATE", _enable_wal)
    try:
        with engine.begin() as connection:
            return upgrade_to_head(connection)
    finally:
        engine.dispose()


def _configure(engine: Engine, begin: str, set_up: Callable[[Any], None]) -> None:
    def connected(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        set_up(cursor)
        cursor.close()

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))


def _enable_wal(cursor: Any) -> None:
    # The mode is stored in the file, so this is needed once. It can't be set in a transaction.
    cursor.execute("PRAGMA journal_mode=WAL")
    (mode,) = cursor.fetchone()
    if mode != "wal":
        # SQLite falls back silently where the file system lacks shared memory.
        raise UnusableDatabase(
            f"SQLite can't use a write-ahead log on this file system: journal mode is `{mode}`, "
            "expected `wal`; put the data directory on a local file system"
        )
    cursor.execute("PRAGMA synchronous=FULL")


def _set_up_writer(cursor: Any) -> None:
    # NORMAL would keep the file consistent, but a power cut would lose acknowledged commits.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    # Overwrites deleted rows with zeros: what was erased must be in no byte of the file. `FAST`
    # would leave it in pages that become free.
    cursor.execute("PRAGMA secure_delete=ON")
    # Calls no function that a tampered schema names (sqlite.org/security.html).
    cursor.execute("PRAGMA trusted_schema=OFF")
    cursor.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    cursor.execute(f"PRAGMA cache_size=-{CACHE_KIB}")


def _set_up_reader(cursor: Any) -> None:
    # A write outside the writer's lane would be a bug: let it fail.
    cursor.execute("PRAGMA query_only=ON")
    cursor.execute("PRAGMA trusted_schema=OFF")
