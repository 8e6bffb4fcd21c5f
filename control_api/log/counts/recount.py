"""Counts a log anew from its entries, beside those who append and purge.

    recount = Recount(store, tenant_id, take, rest)
    await recount.walk()                 every entry, from the head back to the oldest
    async with store.snapshot(...):
        await recount.close(connection)  what came since; the stored counts are of the same entries

INVARIANT: the stored counts change with the entries that they count, in one transaction. So within
one snapshot, they are those of exactly the rows that it shows. The walk goes back to front because
a purge removes the oldest entries: what it removes meanwhile was not counted yet.

Verifies no entry: the scheduled verification does. Knows nothing of the stored counts.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from sqlalchemy import Row, Select, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.counters import BatchCounts
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.store import Store
from policies.ground.canonical import micros
from policies.trail.core import TIME_DOUBTFUL, marks_of
from policies.trail.entry import counted_index, index_of

ROWS = 100
"""Entries counted between two turns of the event loop, in one or two milliseconds."""
TAIL = 500
"""The most entries that are left to be counted in the snapshot."""


class EntriesMoved(Exception):
    """a purge removed entries that were counted already: count again"""


class Uncountable(Exception):
    """an entry can't be read as one. `seq` and `eid` are its columns."""

    def __init__(self, seq: int, eid: str) -> None:
        super().__init__(seq, eid)
        self.seq, self.eid = seq, eid


class Recount:
    """One count of a tenant's log. `take` gets the counts of some entries at a time. After each of
    these, other tasks get `rest` times the CPU time that they took, and `beside` is awaited. `see`
    gets each entry: the older ones from the newest on, and then those that came meanwhile."""

    def __init__(
        self,
        store: Store,
        tenant_id: str,
        take: Callable[[BatchCounts], None],
        rest: float,
        beside: Callable[[], Awaitable[None]] | None = None,
        see: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._see = see
        self._store, self._tenant_id, self._take = store, tenant_id, take
        self._rest, self._beside = rest, beside
        self._first: int | None = None
        self._size = 0

    @property
    def size(self) -> int:
        """The number of the entry that follows those counted before `close`."""
        return self._size

    async def walk(self) -> None:
        """Count all entries, but for the last few that are appended meanwhile. Raises `Uncountable`
        for one that can't be read."""
        async with self._store.reading(self._tenant_id) as connection:
            before = self._size = await self._head(connection)
        while rows := await self._page(_BACKWARD, before):
            await self._count(rows)
            before = self._first = rows[-1].seq
        while await self._left() > TAIL:
            rows = await self._page(_FORWARD, self._size)
            if not rows:
                return  # They were removed: what is stored won't fit, and `close` sees it.
            await self._count(rows)
            self._size = rows[-1].seq + 1

    async def close(self, connection: AsyncConnection) -> None:
        """Count what came since `walk`, in a snapshot. Raises `EntriesMoved` if entries that were
        counted are gone, and `Uncountable`."""
        tenant, size = {"tenant": self._tenant_id}, await self._head(connection)
        first = (await connection.execute(_FIRST, tenant)).scalar()
        # A log that was empty may have its first entries by now.
        if first != self._first and (self._first is not None or self._size):
            raise EntriesMoved
        wanted = {**tenant, "at": self._size, "until": size, "rows": size - self._size}
        rows = (await connection.execute(_FORWARD, wanted)).all()
        self._take(self._counted(rows))

    async def _left(self) -> int:
        async with self._store.reading(self._tenant_id) as connection:
            return await self._head(connection) - self._size

    async def _head(self, connection: AsyncConnection) -> int:
        size = (await connection.execute(_SIZE, {"tenant": self._tenant_id})).scalar()
        return 0 if size is None else int(size)

    async def _page(self, query: Any, at: int) -> Sequence[Row[Any]]:
        wanted = {"tenant": self._tenant_id, "at": at, "until": 1 << 62, "rows": ROWS}
        async with self._store.reading(self._tenant_id) as connection:
            return (await connection.execute(query, wanted)).all()

    async def _count(self, rows: Sequence[Row[Any]]) -> None:
        began = time.thread_time()
        self._take(self._counted(rows))
        await asyncio.sleep(self._rest * (time.thread_time() - began))
        if self._beside is not None:
            await self._beside()

    def _counted(self, rows: Sequence[Row[Any]]) -> BatchCounts:
        counts = BatchCounts()
        for row in rows:
            try:
                entry = orjson.loads(row.entry)
                _count(counts, entry)
                if self._see is not None:
                    self._see(entry)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise Uncountable(row.seq, row.eid) from error
        return counts


def _count(counts: BatchCounts, entry: dict[str, Any]) -> None:
    """Counts an entry as it was counted when it was appended."""
    index, ts, marks = index_of(entry), micros(entry["ts"]), marks_of(entry)
    if TIME_DOUBTFUL in marks:
        counts.add_doubtful(ts)
    if index.decision is None:
        return
    if index.agent_role is None or index.source_id is None:
        raise ValueError("a decision without a role or a source")
    counts.add(counted_index(index, ts, marks), entry["pub"]["request"]["source_type"])


_ROW: Select[Any] = select(log_entries.c.seq, log_entries.c.eid, log_entries.c.entry).where(
    log_entries.c.tenant_id == bindparam("tenant")
)
_BACKWARD = (
    _ROW.where(log_entries.c.seq < bindparam("at"))
    .order_by(log_entries.c.seq.desc())
    .limit(bindparam("rows"))
)
_FORWARD = (
    _ROW.where(log_entries.c.seq >= bindparam("at"), log_entries.c.seq < bindparam("until"))
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
_FIRST = select(func.min(log_entries.c.seq)).where(log_entries.c.tenant_id == bindparam("tenant"))
_SIZE = select(log_heads.c.size).where(log_heads.c.tenant_id == bindparam("tenant"))
