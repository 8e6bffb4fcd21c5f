"""A transaction on PostgreSQL, and whom it speaks for: what row-level security goes by.

Begun in one round trip and ended in one: SQLAlchemy's connection is in autocommit, and BEGIN with
its settings goes as one message of the simple protocol. Knows no table.

INVARIANT: a connection goes back to the pool outside of any transaction, or not at all.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy import PoolProxiedConnection, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

ALL_TENANTS = "*"
"""In the place of a tenant: rows of all of them, of the few tables whose policies say so. No id of
a tenant looks like it."""
ROLLBACK_SECONDS = 5.0
REPLACED = 64
"""So many dead connections are passed over in search of one that is alive."""
_WRITING = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = {:.0f}; "
_READING = "BEGIN READ ONLY; "
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; "


def reading(tenant_id: str, key_digest: bytes | None = None) -> str:
    """How a transaction begins that can't write. With the SHA-256 of a key it sees that key too,
    whosever it is."""
    words = _READING + _set("tenant", tenant_id)
    return words if key_digest is None else f"{words}; {_set('key_digest', key_digest.hex())}"


def snapshot(tenant_id: str) -> str:
    """The same, where everything that is read is of the moment of the first read."""
    return _SNAPSHOT + _set("tenant", tenant_id)


def writing(tenant_id: str, silent_seconds: float) -> str:
    """How a transaction begins that may write the tenant's rows. Who holds a lock and says nothing
    for so long was stopped or cut off, and others wait for what it holds."""
    return _WRITING.format(silent_seconds * 1000) + _set("tenant", tenant_id)


def _set(name: str, value: str, how: str = "SET LOCAL") -> str:
    # `standard_conforming_strings` is on in every session of ours: a quote is all that ends it.
    if "\0" in value:
        raise ValueError("a setting holds no NUL")
    return "{} sluice.{} = '{}'".format(how, name, value.replace("'", "''"))


@asynccontextmanager
async def all_tenants(connection: AsyncConnection, tenant_id: str) -> AsyncIterator[None]:
    """For a moment the transaction, of `tenant_id`, speaks for everyone. An exception leaves it so:
    it is the transaction's end."""
    if connection.dialect.name != "postgresql":
        yield
        return
    await connection.execute(_AS, {"tenant": ALL_TENANTS})
    yield
    await connection.execute(_AS, {"tenant": tenant_id})


_AS = text("SELECT set_config('sluice.tenant', :tenant, true)")


class Connections:
    """A pool of them. One that died while nobody used it is replaced unnoticed; and once one has
    said nothing for too long, none of those that were made before it is trusted any more."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._generation = 0
        event.listen(engine.sync_engine, "connect", self._connected)
        event.listen(engine.sync_engine, "checkout", self._leaves)

    @asynccontextmanager
    async def transaction(self, begin: str) -> AsyncIterator[AsyncConnection]:
        """Committed at the end, rolled back by an exception."""
        connection = await self._begun(begin)
        try:
            yield connection
            await _commit(connection)
        except BaseException as error:
            await self._give_up(connection, error)
            raise
        finally:
            await connection.close()

    async def autocommit(self, tenant_id: str, statement: str, values: tuple[Any, ...]) -> bool:
        """A statement that is a transaction of its own, in one round trip; whether it gave a row
        back. The session speaks for the tenant until it is told otherwise: every transaction begins
        by telling it."""
        connection = await self._engine.connect()
        try:
            info = _pooled(connection).info
            if info.get("tenant") != tenant_id:
                info.pop("tenant", None)
                await _say(connection, _set("tenant", tenant_id, "SET"))
                info["tenant"] = tenant_id
            return (await connection.exec_driver_sql(statement, values)).rowcount == 1
        except BaseException as error:
            await self._give_up(connection, error)
            raise
        finally:
            await connection.close()

    async def _begun(self, begin: str) -> AsyncConnection:
        """A connection in a transaction. Where the pool's are dead, another is tried: nothing was
        asked of them yet."""
        for left in reversed(range(REPLACED)):
            connection = await self._engine.connect()
            try:
                await _say(connection, begin)
            except BaseException as error:
                await self._give_up(connection, error)
                await connection.close()
                if not (left and _died(error)):
                    raise
            else:
                return connection
        raise AssertionError

    async def _give_up(self, connection: AsyncConnection, error: BaseException) -> None:
        if isinstance(error, TimeoutError):
            self._generation += 1
        await _roll_back(connection, error)

    def _connected(self, _: object, record: Any) -> None:
        record.info["generation"] = self._generation

    def _leaves(self, dbapi_connection: Any, record: Any, _: object) -> None:
        """A connection leaves the pool: where it is not fit for it, a new one goes in its place."""
        driver = dbapi_connection.driver_connection
        if record.info.get("generation", 0) != self._generation or driver.is_in_transaction():
            driver.terminate()
        if driver.is_closed():
            raise DisconnectionError


def _died(error: BaseException) -> bool:
    gone = isinstance(error, DBAPIError) and error.connection_invalidated
    return gone or isinstance(error, ConnectionError)


async def _commit(connection: AsyncConnection) -> None:
    # If we die before the answer, or the answer is lost, nobody knows whether it was committed:
    # whoever tries again looks first.
    if await _say(connection, "COMMIT") != "COMMIT":
        # PostgreSQL says ROLLBACK, and no more, where a statement failed and that was passed over.
        raise AssertionError("a transaction went on after an error")


async def _roll_back(connection: AsyncConnection, error: BaseException) -> None:
    """Leave the connection as one that the pool may give to others, or end it."""
    if connection.invalidated:
        return  # SQLAlchemy saw it die
    driver = _driver(connection)
    # A statement that was broken off, by a deadline or by the end of its task, may still run.
    if isinstance(error, Exception) and not isinstance(error, OSError):
        if driver.is_closed():
            await connection.invalidate()
            return
        try:
            if driver.is_in_transaction():
                await driver.execute("ROLLBACK", timeout=ROLLBACK_SECONDS)
            return
        except (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            OSError,
        ):
            pass  # then the connection ends, and the transaction with it
    driver.terminate()
    await connection.invalidate()


async def _say(connection: AsyncConnection, words: str) -> str:
    """The server's answer; errors as SQLAlchemy tells them."""
    driver = _driver(connection)
    try:
        said: str = await driver.execute(words)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        if isinstance(error, asyncpg.InternalClientError):
            driver.terminate()  # it was told of its end, and has not got over it yet
        gone = driver.is_closed()
        raise DBAPIError(None, None, error, True, connection_invalidated=gone) from error
    return said


def _driver(connection: AsyncConnection) -> Any:
    """asyncpg's connection."""
    return _pooled(connection).driver_connection


def _pooled(connection: AsyncConnection) -> PoolProxiedConnection:
    assert connection.sync_connection is not None
    return connection.sync_connection.connection
