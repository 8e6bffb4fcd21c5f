"""Begins and ends transactions on PostgreSQL, each with the tenant for which row-level security
lets it act. BEGIN and its settings go as one message of the simple protocol, COMMIT as another, so
each takes one round trip; SQLAlchemy's connection is in autocommit mode.

INVARIANT: a connection returns to the pool outside any transaction, or not at all.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import asyncpg
from sqlalchemy import PoolProxiedConnection, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from control_api.database_limits import DatabaseLimits

ALL_TENANTS = "*"
"""The value that makes every tenant's rows visible when it is set in place of a tenant id, in the
few tables whose row-level policy allows it. No tenant has this id."""
ROLLBACK_SECONDS = 5.0
MAX_DEAD = 64
"""The maximum number of dead pooled connections to discard in search of a live one."""
_TENANT = "sluice.tenant"


class Begin(NamedTuple):
    """The beginning of a transaction: its mode, and the statements that make its settings."""

    mode: str
    settings: str


def reading(tenant_id: str, key_digest: bytes | None = None) -> Begin:
    """Return the beginning of a read-only transaction. Given an API key's SHA-256, the transaction
    also sees that key, whichever tenant owns it."""
    settings = _set(_TENANT, tenant_id)
    if key_digest is not None:
        settings += f"; {_set('sluice.key_digest', key_digest.hex())}"
    return Begin("BEGIN READ ONLY", settings)


def snapshot(tenant_id: str) -> Begin:
    """Return the beginning of a read-only transaction whose reads all see the database as of the
    first one."""
    return Begin("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", _set(_TENANT, tenant_id))


def writing(tenant_id: str, silent_seconds: float) -> Begin:
    """Return the beginning of a transaction that may write the tenant's rows. PostgreSQL aborts it
    after `silent_seconds` without a statement, so that a stopped or disconnected process does not
    hold its locks for long."""
    silent = f"SET LOCAL idle_in_transaction_session_timeout = {silent_seconds * 1000:.0f}"
    return Begin("BEGIN", f"{silent}; {_set(_TENANT, tenant_id)}")


def _set(name: str, value: str, how: str = "SET LOCAL") -> str:
    # SET takes no parameters, so SQL injection is prevented by hand. The service's sessions have
    # `standard_conforming_strings` on: a quote is the only character that could end the literal.
    if "\0" in value:
        raise ValueError("a setting can't contain a NUL character")
    return "{} {} = '{}'".format(how, name, value.replace("'", "''"))


@asynccontextmanager
async def all_tenants(connection: AsyncConnection, tenant_id: str) -> AsyncIterator[None]:
    """Let a transaction of `tenant_id` see all tenants' rows within the block. After an exception
    the tenant is not restored, because the transaction ends."""
    if connection.dialect.name != "postgresql":
        yield
        return
    await connection.execute(_SET_TENANT, {"tenant": ALL_TENANTS})
    yield
    await connection.execute(_SET_TENANT, {"tenant": tenant_id})


_SET_TENANT = text(f"SELECT set_config('{_TENANT}', :tenant, true)")


class TransactionPool:
    """Runs transactions on pooled connections. It replaces connections that died while idle. Once a
    connection has not answered in time, it no longer trusts any that was made before."""

    def __init__(self, engine: AsyncEngine, limits: DatabaseLimits) -> None:
        self._engine = engine
        self._commit_seconds = limits.commit_seconds
        # Before the transaction's own settings, which may be stricter.
        self._settings = "".join(f"{_set(*each)}; " for each in limits.of_transaction().items())
        self._generation = 0
        event.listen(engine.sync_engine, "connect", self._on_connect)
        event.listen(engine.sync_engine, "checkout", self._on_checkout)

    @asynccontextmanager
    async def transaction(self, begin: Begin) -> AsyncIterator[AsyncConnection]:
        """Run the block in a transaction, which commits at the end and rolls back on an
        exception."""
        connection = await self._begin(begin)
        try:
            yield connection
            with self._given_up(connection):
                await _commit(connection)
        except BaseException as error:
            # A cancelled task must not leave a transaction behind either.
            await self._abandon(connection, error)
            raise
        finally:
            await connection.close()

    async def autocommit(self, tenant_id: str, statement: str, values: tuple[Any, ...]) -> bool:
        """Run one statement as a transaction of its own, in one round trip. Returns whether the
        statement returned a row.

        The session keeps acting for the tenant afterwards. That is safe, because every transaction
        sets its own tenant when it begins.
        """
        connection = await self._engine.connect()
        try:
            info = _pooled(connection).info
            if info.get("tenant") != tenant_id:
                # Forget the tenant before the SET: if its answer is lost, the tenant is unknown.
                info.pop("tenant", None)
                await _execute(connection, _set(_TENANT, tenant_id, "SET"))
                info["tenant"] = tenant_id
            with self._given_up(connection):
                return (await connection.exec_driver_sql(statement, values)).rowcount == 1
        except BaseException as error:
            await self._abandon(connection, error)
            raise
        finally:
            await connection.close()

    @contextmanager
    def _given_up(self, connection: AsyncConnection) -> Iterator[None]:
        """End the connection if a commit is not answered in time.

        The driver would also ask the server to cancel the commit, which a server with synchronous
        standbys does by showing it to everyone before any standby has it. A reader could answer by
        a row that a failover then loses.
        """
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._commit_seconds, _driver(connection).terminate)
        try:
            yield
        finally:
            timer.cancel()

    async def _begin(self, begin: Begin) -> AsyncConnection:
        """Return a connection on which the transaction has begun. Dead connections are replaced.
        That is safe, because none of the transaction's statements has been sent yet."""
        statements = f"{begin.mode}; {self._settings}{begin.settings}"
        for left in reversed(range(MAX_DEAD)):
            connection = await self._engine.connect()
            try:
                await _execute(connection, statements)
            except BaseException as error:
                await self._abandon(connection, error)
                await connection.close()
                if not (left and _is_dead(error)):
                    raise
            else:
                return connection
        raise AssertionError

    async def _abandon(self, connection: AsyncConnection, error: BaseException) -> None:
        if isinstance(error, TimeoutError):
            # If a server hangs, it hangs for all of its connections. Without this, each of them
            # would cost another caller the full time limit.
            self._generation += 1
        await _roll_back(connection, error)

    def _on_connect(self, _: object, record: Any) -> None:
        record.info["generation"] = self._generation

    def _on_checkout(self, dbapi_connection: Any, record: Any, _: object) -> None:
        """Close a connection that must not be used again, and raise `DisconnectionError`, on which
        SQLAlchemy connects anew."""
        driver = dbapi_connection.driver_connection
        if record.info.get("generation", 0) != self._generation or driver.is_in_transaction():
            driver.terminate()
        if driver.is_closed():
            raise DisconnectionError


def _is_dead(error: BaseException) -> bool:
    invalidated = isinstance(error, DBAPIError) and error.connection_invalidated
    return invalidated or isinstance(error, ConnectionError)


async def _commit(connection: AsyncConnection) -> None:
    # If we die before the answer, or the answer is lost, it is unknown whether the transaction
    # committed: a retry has to look for its rows first.
    if await _execute(connection, "COMMIT") != "COMMIT":
        # A statement failed and its error was swallowed. PostgreSQL then answers ROLLBACK, which is
        # not an error.
        raise AssertionError("a transaction went on after an error")


async def _roll_back(connection: AsyncConnection, error: BaseException) -> None:
    """Roll back, so that the pool can reuse the connection. If that can't be done, end the
    connection."""
    if connection.invalidated:
        return  # SQLAlchemy has already noticed that it died
    driver = _driver(connection)
    # After a timeout or a cancellation the statement may still be running: end the connection.
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


async def _execute(connection: AsyncConnection, statements: str) -> str:
    """Send statements and return the server's answer. The driver's errors are raised as
    SQLAlchemy's."""
    driver = _driver(connection)
    try:
        status: str = await driver.execute(statements)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        if isinstance(error, asyncpg.InternalClientError):
            # asyncpg has learned that the connection ends, but has not closed it yet.
            driver.terminate()
        closed = driver.is_closed()
        raise DBAPIError(None, None, error, True, connection_invalidated=closed) from error
    return status


def _driver(connection: AsyncConnection) -> Any:
    return _pooled(connection).driver_connection


def _pooled(connection: AsyncConnection) -> PoolProxiedConnection:
    assert connection.sync_connection is not None
    return connection.sync_connection.connection
