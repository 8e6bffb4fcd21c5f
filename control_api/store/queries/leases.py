"""Queries the state of the scheduled verification (`self_checks`) and of the comparison of counts
(`count_checks`): one row per log in each table, leased to one process at a time."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Table, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema import log as tables
from control_api.store.schema.statements import columns_of, insert_if_absent, of_tenant, values_of

ASKED_FOR = 0
"""The value of `leased_until` while somebody has asked for a step and none has begun since."""
MOST_LEASED = 1_200_000_000
"""The maximum time (microseconds) from now until a verification's lease ends. It is twice a lease's
duration, since clocks differ. A lease that ends later was made by a clock that ran ahead, or by
hand, and is ignored."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The state of a log's scheduled verification: how far its round has come (`size`, with the
    tree's frontier and the last leaf), and its latest finding. `verified_at` is when the last
    completed round began: everything that the round verified was right then or later. Times in
    microseconds since 1970 UTC."""

    size: int
    frontier: bytes
    last_leaf: bytes
    started_at: int
    finished_at: int | None = None
    finished_size: int | None = None
    broken_at: str | None = None
    reason: str | None = None
    leased_until: int | None = None
    verified_at: int | None = None

    def is_leased(self, now: int) -> bool:
        """Return whether a process takes a step now, or died in one."""
        return self.leased_until is not None and now < self.leased_until <= now + MOST_LEASED


@dataclass(frozen=True, slots=True)
class CountCheck:
    """The result of the last comparison of a log's counts with its entries. `checked_at`
    (microseconds since 1970 UTC) is None if they were never compared; `reason` says how they
    differed, None if they did not."""

    checked_at: int | None = None
    reason: str | None = None
    leased_until: int | None = None

    def is_running(self, now: int) -> bool:
        """Return whether a comparison is under way, or was asked for."""
        return self.is_leased(now) or self.leased_until == ASKED_FOR

    def is_leased(self, now: int) -> bool:
        """Return whether a process compares now, or died while it did."""
        return self.leased_until is not None and self.leased_until > now


S = TypeVar("S")
A = TypeVar("A")


class Leases(Generic[S, A]):
    """The rows of one table, which hold a state for each log and the lease on it. `absent` is the
    state of a log without a row, and `most` the longest time from now that a lease may last, in
    microseconds (None: no limit)."""

    def __init__(self, table: Table, kind: type[S], absent: A, most: int | None = None) -> None:
        self._table, self._kind, self._absent, self._most = table, kind, absent, most

    async def state(self, connection: AsyncConnection, tenant_id: str) -> S | A:
        query = select(*columns_of(self._table)).where(of_tenant(self._table, tenant_id))
        row = (await connection.execute(query)).one_or_none()
        return self._absent if row is None else self._kind(*row)

    async def claim(
        self, connection: AsyncConnection, tenant_id: str, first: S, now: int, until: int
    ) -> S | A | None:
        """Take the lease until `until`, and return the log's state; None while another process has
        the lease. `first` is the state that a log without a row gets."""
        await self._create(connection, tenant_id, first)
        held = self._table.c.leased_until
        free = [held.is_(None), held <= now]
        if self._most is not None:
            free.append(held > now + self._most)
        mine = update(self._table).where(of_tenant(self._table, tenant_id), or_(*free))
        if not (await connection.execute(mine.values(leased_until=until))).rowcount:
            return None
        return await self.state(connection, tenant_id)

    async def ask(self, connection: AsyncConnection, tenant_id: str, **changed: int) -> None:
        """Request that a step begins at once, with these members of the state `changed`. A step
        under way loses its lease, and so can't save its result."""
        if self._absent is not None:
            await self._create(connection, tenant_id, self._absent)
        row = update(self._table).where(of_tenant(self._table, tenant_id))
        await connection.execute(row.values(leased_until=ASKED_FOR, **changed))

    async def renew(
        self, connection: AsyncConnection, tenant_id: str, lease: int, until: int
    ) -> bool:
        """Move the end of the caller's lease from `lease` to `until`; return False if the lease was
        lost."""
        return await self._change(connection, tenant_id, lease, {"leased_until": until})

    async def release(self, connection: AsyncConnection, tenant_id: str, lease: int) -> None:
        """End the lease that ends at `lease`, unless it was lost. The step under it was
        interrupted, so the next process to look takes the lease again."""
        await self._change(connection, tenant_id, lease, {"leased_until": ASKED_FOR})

    async def put(self, connection: AsyncConnection, tenant_id: str, lease: int, after: S) -> None:
        """Replace the state, unless the lease that ends at `lease` was lost meanwhile."""
        await self._change(connection, tenant_id, lease, values_of(after))

    async def _change(
        self, connection: AsyncConnection, tenant_id: str, lease: int, values: dict[str, object]
    ) -> bool:
        mine = (of_tenant(self._table, tenant_id), self._table.c.leased_until == lease)
        done = await connection.execute(update(self._table).where(*mine).values(values))
        return done.rowcount == 1

    async def _create(self, connection: AsyncConnection, tenant_id: str, first: S | A) -> None:
        row = {"tenant_id": tenant_id, **values_of(first)}
        await connection.execute(insert_if_absent(self._table, connection.dialect).values(row))


self_checks = Leases(tables.self_checks, SelfCheck, None, MOST_LEASED)
count_checks = Leases(tables.count_checks, CountCheck, CountCheck())


async def begin_round(connection: AsyncConnection, tenant_id: str, *, stopped: bool) -> None:
    """Request that the next step begins a round over the whole log. If the walk is `stopped` at a
    finding, it continues there instead, so that the finding stays until it is repaired."""
    # `started_at` 0 makes the round due.
    await self_checks.ask(connection, tenant_id, **({} if stopped else {"started_at": 0}))
