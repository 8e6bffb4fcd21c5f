"""The interface that the store needs from a database, and the choice between SQLite and PostgreSQL
by URL. Knows no table."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.database_limits import LIMITS, DatabaseLimits
from control_api.store.postgresql.engine import PostgresqlDatabase
from control_api.store.sqlite import SqliteDatabase
from control_api.store.url import parse_url

T = TypeVar("T")


Autocommit = Callable[[str, str, tuple[Any, ...]], Awaitable[bool]]
"""A function that runs one statement, given its lane and its values, as a transaction of its own,
in the lane's order. Returns whether the statement returned a row, once it is committed."""


class Database(Protocol):
    """SQLite or PostgreSQL, with the schema that this version needs. A lane is the queue that
    orders the writes of one or more tenants.

    INVARIANT: of two transactions that write in the same lane, the second begins after the first
    has committed or rolled back. A lock ensures it within this process, the database between
    processes.
    """

    def lane(self, tenant_id: str) -> str:
        """Return the name of the lane that orders a tenant's writes. Tenants of one lane may share
        a transaction."""
        ...

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a read-only transaction. On SQLite all its reads see one state of the database. On
        PostgreSQL each statement sees one state, and no rows of other tenants."""
        ...

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction like `reading` that sees every tenant's rows in the tables that allow
        it."""
        ...

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction like `reading` that sees only the API key with this SHA-256."""
        ...

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction like `reading` in which all reads see one state on either
        database."""
        ...

    async def run_reading(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction like that of `reading`; `work` awaits nothing. On SQLite it
        runs in a thread, which saves turns of the event loop for each statement."""
        ...

    async def run_snapshot(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        """Run `work` like `run_reading`, but all its reads see one state on either database."""
        ...

    def writing(self, lane: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that writes the rows of the lane's tenants, in the lane's order. It
        commits at the end and rolls back on an exception."""
        ...

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction like that of `writing`; `work` awaits nothing. On SQLite it
        runs in the writer's thread, which saves turns of the event loop for each statement."""
        ...

    @property
    def autocommit(self) -> Autocommit | None:
        """A function that runs single statements as transactions of their own. None on SQLite,
        which has no round trips to save, and behind a connection pooler."""
        ...

    async def fold(self) -> bool:
        """Remove deleted data from the database's files, as far as the service can. Returns False
        if a reader still needs it: then try again. On PostgreSQL only vacuum removes it."""
        ...

    async def close(self) -> None: ...


async def connect(url: str, limits: DatabaseLimits = LIMITS) -> Database:
    """Open the database at `url`. Raises `UnusableDatabase` or `DatabaseUnreachable` on failure."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return await SqliteDatabase.open(parsed)
    return await PostgresqlDatabase.open(parsed, limits)
