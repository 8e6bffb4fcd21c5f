"""The store: reads at any time, writes in one order, listeners told after the commit.

    async with store.reading(tenant_id) as connection: ...
    await store.write(tenant_id, work)           work(tx) is one transaction
    await store.run(tenant_id, work)             the same for work that awaits nothing

A write belongs to the service, not to its caller: it runs on the service's task group to its end,
whether or not the caller is still there. Knows no table.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.database_limits import LIMITS, DatabaseLimits
from control_api.revision_context import WRITTEN
from control_api.store.database import Autocommit, Database, connect
from control_api.store.errors import (
    FAULTS,
    ReadFault,
    UnknownState,
    WriteFault,
    is_conflict,
    is_fault,
)
from control_api.store.group_commit import start_task
from control_api.store.transaction import Published, Transaction
from policies.ground.clock import Clock

T = TypeVar("T")
RETRY_PAUSES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Seconds, at most, before a transaction that PostgreSQL gave up is done again."""
Listener = Callable[[str, Published], None]


class Store:
    """One database, open."""

    def __init__(self, database: Database, clock: Clock, group: asyncio.TaskGroup) -> None:
        self.clock = clock
        self.group = group
        self._database = database
        self._listeners: list[Listener] = []

    @classmethod
    async def open(
        cls, url: str, clock: Clock, group: asyncio.TaskGroup, limits: DatabaseLimits = LIMITS
    ) -> "Store":
        """`Unusable` where the database can't be used as it is."""
        return cls(await connect(url, limits), clock, group)

    async def close(self) -> None:
        """After the task group has ended: no write is under way any more."""
        await self._database.close()

    def lane(self, tenant_id: str) -> str:
        """Tenants of one lane may be written in one transaction (`run`)."""
        return self._database.lane(tenant_id)

    def on_published(self, listener: Listener) -> None:
        """`listener(tenant_id, published)` after each commit that published something, in the order
        of a tenant's revisions, before the write answers. It must not raise, nor wait."""
        self._listeners.append(listener)

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """One tenant's rows; `ReadFault` where the database does not answer."""
        return _told(self._database.reading(tenant_id))

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """The same, where whatever is read is of one state of the database: that of the first read,
        not of the call."""
        return _told(self._database.snapshot(tenant_id))

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Rows of every tenant, of the few tables that may be read so: for what has to find the
        tenants first."""
        return _told(self._database.reading_all_tenants())

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:
        """The one key with this SHA-256, whosever it is."""
        return _told(self._database.reading_key(digest))

    async def write(self, tenant_id: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """What `work` returns, after the commit. An error in it rolls everything back and comes out
        here; `WriteFault` where the database fails. Where PostgreSQL gives the transaction up for
        another's sake, `work` is called again, in a new one. The tenant's revision after it is told
        to `control_api.revision_context`."""
        result, revision = await self._outlive(self._write(tenant_id, work))
        WRITTEN.set(revision)
        return result

    @property
    def autocommit(self) -> Autocommit | None:
        """Where one statement may be a transaction of its own: `once(lane, statement, values)` says
        whether it gave a row back. Not done again: `FAULTS` come out as they are, and say nothing
        of whether it was committed. To be called on the service's task group."""
        return self._database.autocommit

    async def run(
        self, lane: str, work: Callable[[Connection, bool], T], *, again: bool = False
    ) -> T:
        """What `work(connection, again)` returns, after the commit.

        After a conflict it is called again (`RETRY_PAUSES`). A fault, or an id that is there
        already, and it is called once more, in a new transaction, with `again` true: the first may
        have been committed although we were not told, so it must then look for what is there. A
        second fault is a `WriteFault`. `again` where it may have been committed before.
        """
        return await self._outlive(self._run(lane, work, again))

    async def _write(
        self, tenant_id: str, work: Callable[[Transaction], Awaitable[T]]
    ) -> tuple[T, int | None]:
        for pause in RETRY_PAUSES:
            try:
                return await self._write_once(tenant_id, work)
            except DBAPIError as error:
                if not is_conflict(error):
                    raise
            await _pause(pause)
        return await self._write_once(tenant_id, work)

    async def _write_once(
        self, tenant_id: str, work: Callable[[Transaction], Awaitable[T]]
    ) -> tuple[T, int | None]:
        published: Published | None = None
        async with self._database.writing(self.lane(tenant_id)) as connection:
            tx = Transaction(connection, tenant_id, self.clock.now())
            await tx.begin()
            result = await work(tx)
            published = await tx.finish()
        # Committed. If we die here the caller gets no answer, and every copy of the policy set is
        # read anew from the store. Nothing is awaited between the lane's lock and the listeners:
        # they hear of revisions in order.
        if published is not None:
            for listener in self._listeners:
                listener(tenant_id, published)
        return result, tx.revision

    async def _run(self, lane: str, work: Callable[[Connection, bool], T], again: bool) -> T:
        pauses = iter(RETRY_PAUSES)
        while True:
            try:
                return await self._database.run(lane, partial(_worked, work, again))
            except FAULTS as error:
                if is_conflict(error) and (pause := next(pauses, None)) is not None:
                    await _pause(pause)
                elif again and isinstance(error, IntegrityError):
                    # It looked, in the lane's order, and the row was not there.
                    raise UnknownState("a row is in the way that is not there") from error
                elif again or not (is_fault(error) or isinstance(error, IntegrityError)):
                    raise
                else:
                    again = True

    async def _outlive(self, task: Coroutine[Any, Any, T]) -> T:
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        start_task(self.group, _settle(task, outcome))
        return await outcome


def _worked(work: Callable[[Connection, bool], T], again: bool, connection: Connection) -> T:
    return work(connection, again)


async def _pause(most: float) -> None:
    # Two that met must not meet again.
    await asyncio.sleep(random.uniform(most / 4, most))  # noqa: S311  # spreads, guards nothing


@asynccontextmanager
async def _told(
    reading: AbstractAsyncContextManager[AsyncConnection],
) -> AsyncIterator[AsyncConnection]:
    try:
        async with reading as connection:
            yield connection
    except FAULTS as error:
        if is_fault(error):
            raise ReadFault from error
        raise


async def _settle(task: Coroutine[Any, Any, T], outcome: "asyncio.Future[T]") -> None:
    """Run `task` to its end. An unknown state ends the service with it: whoever goes on writing to
    a log that it doesn't know makes two of one."""
    try:
        result = await task
    except UnknownState:
        _fail(outcome, WriteFault())
        raise
    except Exception as error:  # noqa: BLE001  the caller's to handle
        fault = isinstance(error, FAULTS) and is_fault(error)
        _fail(outcome, WriteFault() if fault else error, error if fault else None)
    except BaseException:
        _fail(outcome, WriteFault())
        raise
    else:
        if not outcome.done():
            outcome.set_result(result)


def _fail(
    outcome: "asyncio.Future[T]", error: Exception, cause: BaseException | None = None
) -> None:
    if cause is not None:
        error.__cause__ = cause
    if not outcome.done():
        outcome.set_exception(error)
