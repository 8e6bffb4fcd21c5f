"""What the store asks of a database, and which one a URL names. Knows no table."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.database_limits import LIMITS, DatabaseLimits
from control_api.store.postgresql.engine import PostgresqlDatabase
from control_api.store.sqlite import SqliteDatabase
from control_api.store.url import parse_url

T = TypeVar("T")


class Autocommit(Protocol):
    """One statement as a transaction of its own, in the lane's order."""

    async def __call__(self, lane: str, statement: str, values: tuple[Any, ...]) -> bool:
        """Whether it gave a row back, after its commit."""
        ...


class Database(Protocol):
    """SQLite or PostgreSQL, at the schema that this version knows.

    INVARIANT: of two transactions that write in the same lane, the second begins after the first
    has committed or rolled back: in this process by a lock, between processes by the database.
    """

    def lane(self, tenant_id: str) -> str:
        """What orders writes. Tenants of one lane may share a transaction."""
        ...

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that can't write. It sees one state of the database on SQLite, one state a
        statement on PostgreSQL, and there no row of another tenant."""
        ...

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """The same, of every tenant's rows in the tables that may be read so."""
        ...

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:
        """The same, of the one key with this SHA-256."""
        ...

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """The same as `reading`, of one state of the database on either."""
        ...

    def writing(self, lane: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction in the lane's order, of its tenants' rows; committed at the end,
        rolled back by an exception."""
        ...

    async def run(self, lane: str, work: Callable[[Connection], T]) -> T:
        """The same, of work that awaits nothing: on SQLite in the writer's thread, without turns of
        the event loop for each statement."""
        ...

    @property
    def autocommit(self) -> Autocommit | None:
        """Where one statement may be a transaction of its own; None where that spares nothing, as
        on SQLite, to which there are no round trips."""
        ...

    async def close(self) -> None: ...


async def connect(url: str, limits: DatabaseLimits = LIMITS) -> Database:
    """Open the database at its schema; `Unusable` where it can't be."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return await SqliteDatabase.open(parsed)
    return await PostgresqlDatabase.open(parsed, limits)
