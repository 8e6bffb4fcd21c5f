"""The interface of the store: concurrent reads, ordered writes, and listeners that run after the
commit.

    async with store.reading(tenant_id) as connection: ...
    await store.write(tenant_id, work)           `work(tx)` is one transaction
    await store.run(lane, work)                  one transaction too, for work that awaits nothing

A write runs on the service's task group, not in the caller's task, so it finishes even if the
caller is cancelled. Knows no table.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.current_request import WRITTEN_REVISION
from control_api.database_limits import LIMITS, DatabaseLimits
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
"""The longest pause, in seconds, before each retry of a transaction that PostgreSQL aborted."""
Listener = Callable[[str, Published], None]


class Store:
    def __init__(self, database: Database, clock: Clock, group: asyncio.TaskGroup) -> None:
        self.clock = clock
        self.group = group
        self._database = database
        self._listeners: list[Listener] = []

    @classmethod
    async def open(
        cls, url: str, clock: Clock, group: asyncio.TaskGroup, limits: DatabaseLimits = LIMITS
    ) -> "Store":
        """Open the database at `url`. Raises `UnusableDatabase` or `DatabaseUnreachable`."""
        return cls(await connect(url, limits), clock, group)

    async def close(self) -> None:
        """Close the database. Call this once the task group has ended, so that no write is still
        running."""
        await self._database.close()

    def lane(self, tenant_id: str) -> str:
        """Return the name of the lane: the queue that orders this tenant's writes. Tenants with the
        same lane may share a transaction (`run`)."""
        return self._database.lane(tenant_id)

    def on_published(self, listener: Listener) -> None:
        """Have `listener(tenant_id, published)` called after each commit that published documents,
        before the write returns, and in order of each tenant's revisions. The listener must not
        raise or block."""
        self._listeners.append(listener)

    def reading(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that reads one tenant's rows. Raises `ReadFault` if the database does
        not answer."""
        return _raising_read_faults(self._database.reading(tenant_id))

    async def run_reading(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        """Run `work(connection)` in a transaction like that of `reading`, and return its result. On
        SQLite `work` runs in a thread, beside the event loop; on PostgreSQL it runs on the event
        loop, so it must not compute for long. Raises like `reading`."""
        async with _raising_read_faults(nullcontext()):
            return await self._database.run_reading(tenant_id, work)

    async def run_snapshot(self, tenant_id: str, work: Callable[[Connection], T]) -> T:
        """Run `work` like `run_reading`, but all its reads see the database as it was at the first
        of them."""
        async with _raising_read_faults(nullcontext()):
            return await self._database.run_snapshot(tenant_id, work)

    def snapshot(self, tenant_id: str) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction like `reading` in which all reads see the database as it was at the
        first of them (not at this call)."""
        return _raising_read_faults(self._database.snapshot(tenant_id))

    def reading_all_tenants(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that reads every tenant's rows in the few tables that allow it, for
        work that has to find the tenants first."""
        return _raising_read_faults(self._database.reading_all_tenants())

    def reading_key(self, digest: bytes) -> AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that reads the one API key with this SHA-256, whichever tenant owns
        it."""
        return _raising_read_faults(self._database.reading_key(digest))

    async def write(self, tenant_id: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `work` in a transaction and return its result after the commit.

        An exception from `work` rolls everything back and propagates. A database failure raises
        `WriteFault`. If PostgreSQL aborts the transaction because of a conflict, `work` is called
        again in a new one. `control_api.current_request` receives the tenant's new revision.
        """
        result, revision = await self.run_detached(self._write(tenant_id, work))
        # Set in the caller's task: a context variable set in the detached one would be lost.
        WRITTEN_REVISION.set(revision)
        return result

    async def fold(self) -> bool:
        return await self._database.fold()

    @property
    def autocommit(self) -> Autocommit | None:
        """A function that runs one statement as a transaction of its own; None if the database
        gains nothing by that. `autocommit(lane, statement, values)` returns whether the statement
        returned a row.

        It never retries. `FAULTS` propagate unchanged; after one, the statement may have been
        committed or not. Call it on the service's task group.
        """
        return self._database.autocommit

    async def run(
        self, lane: str, work: Callable[[Connection, bool], T], *, again: bool = False
    ) -> T:
        """Run `work(connection, again)` in a transaction and return its result after the commit.

        After a conflict, it retries with pauses (`RETRY_PAUSES`). After any other fault, or if an
        id already exists, it retries once with `again` true: the first transaction may have been
        committed although its answer was lost, so `work` must then look for existing rows. A second
        fault raises `WriteFault`. Pass `again=True` if an earlier call may have committed.
        """
        return await self.run_detached(self._run(lane, work, again))

    async def _write(
        self, tenant_id: str, work: Callable[[Transaction], Awaitable[T]]
    ) -> tuple[T, int | None]:
        for pause in RETRY_PAUSES:
            try:
                # Each attempt gets a new `Transaction`, so nothing of an aborted one is left.
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
            # Leaving the block commits. Only conflicts are retried: after another fault the commit
            # may have happened without its answer, and `work` may not be able to tell.
        # Committed. If we die here, the caller gets no answer, and every copy of the policy set is
        # read again from the store. Nothing is awaited between the release of the lane's lock and
        # the listeners, so they see revisions in order.
        if published is not None:
            for listener in self._listeners:
                listener(tenant_id, published)
        return result, tx.revision

    async def _run(self, lane: str, work: Callable[[Connection, bool], T], again: bool) -> T:
        # Once `again` is true it stays true: every attempt since then may have committed.
        pauses = iter(RETRY_PAUSES)
        while True:
            try:
                return await self._database.run(lane, partial(_call, work, again))
            except FAULTS as error:
                if is_conflict(error) and (pause := next(pauses, None)) is not None:
                    await _pause(pause)
                elif again and isinstance(error, IntegrityError):
                    # `work` held the lane, looked for the row that is in the way, and found none.
                    raise UnknownState(
                        "a unique constraint fails for a row that does not exist"
                    ) from error
                elif again or not (is_fault(error) or isinstance(error, IntegrityError)):
                    raise
                else:
                    again = True

    async def run_detached(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task on the service's task group and return its result. If the caller is cancelled,
        for example because its client hung up, the caller stops waiting and the task goes on."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        start_task(self.group, _complete(task, outcome))
        return await outcome


def _call(work: Callable[[Connection, bool], T], again: bool, connection: Connection) -> T:
    return work(connection, again)


async def _pause(longest: float) -> None:
    # A random pause, so that two transactions that collided don't collide again.
    await asyncio.sleep(random.uniform(longest / 4, longest))  # noqa: S311  # no secret


@asynccontextmanager
async def _raising_read_faults(reading: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    try:
        async with reading as connection:
            yield connection
    except FAULTS as error:
        if is_fault(error):
            raise ReadFault from error
        raise


async def _complete(task: Coroutine[Any, Any, T], outcome: "asyncio.Future[T]") -> None:
    """Run `task` to its end and pass its result or error to `outcome`. `UnknownState` also
    propagates to the task group, which ends the service: to keep writing to a log in an unknown
    state would fork it."""
    try:
        result = await task
    except UnknownState:
        _fail(outcome, WriteFault())
        raise
    except Exception as error:  # noqa: BLE001  the caller handles it
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
