"""Compares the stored counts of a log with its entries, by counting these anew. The entries are
authoritative.

The stored counts change with every entry, so each of them is right at any moment: the comparison
takes them from one snapshot (`Recount`). A difference means that somebody else changed the
database. The comparison changes nothing, and verifies no entry, which the scheduled verification
does.

    recount = Recount(store, tenant_id, take, rest)
    await recount.walk()                 every entry, from the head back to the oldest
    async with store.snapshot(...):
        await recount.close(connection)  the entries since; the stored counts are of the same ones

INVARIANT: the stored counts change with the entries that they count, in one transaction. So within
one snapshot, they are the counts of exactly the rows that it shows. The walk goes back to front
because a purge removes the oldest entries: those that it removes meanwhile were not counted yet.

Counts are compared by their sums (`CountSums`). A sum is that of count times weight, over all
values of a dimension and time bucket. The weight of a value follows from a secret that is drawn for
one comparison. So counts that differ have other sums, even if an attacker chose the counts and
values.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Row, Select, bindparam, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.checks import SpoolEnds, counters, find_ahead
from control_api.store.counters.counters import BUCKETS, HOUR, KEPT, BatchCounts, Dimension
from control_api.store.queries.redactions import log_size
from control_api.store.schema.log import log_entries, purges, tallies
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.canonical import micros
from policies.trail.core import TIME_DOUBTFUL, marks_of
from policies.trail.entry import counted_index, index_of
from policies.trail.findings import Finding, Reason

RECOUNTED_ROWS = 100
"""Entries counted between two turns of the event loop, in one or two milliseconds."""
MAX_LEFT = 500
"""The most entries that are left to be counted in the final snapshot."""


class EntriesMoved(Exception):
    """a purge removed entries that were counted already: count again"""


class Uncountable(Exception):
    """an entry can't be read as one. `seq` and `eid` are its columns."""

    def __init__(self, seq: int, eid: str) -> None:
        super().__init__(seq, eid)
        self.seq, self.eid = seq, eid


class Recount:
    """Counts the entries of a tenant's log anew. `take` is called with the counts of a few entries
    at a time. After each call, other tasks get `rest` times the CPU time that counting took, and
    `beside` is awaited. `see` is called with each entry: the older ones from the newest on, and
    then those that came meanwhile."""

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
        """The `seq` of the first entry that `walk` has not counted."""
        return self._size

    async def walk(self) -> None:
        """Count all entries except the last few that are appended meanwhile. Raises `Uncountable`
        for an entry that can't be read."""
        async with self._store.reading(self._tenant_id) as connection:
            before = self._size = await log_size(connection, self._tenant_id)
        while rows := await self._page(_BACKWARD, before):
            await self._count(rows)
            before = self._first = rows[-1].seq
        while await self._left() > MAX_LEFT:
            rows = await self._page(_FORWARD, self._size)
            if not rows:
                return  # They were removed: what is stored won't fit, and `close` sees it.
            await self._count(rows)
            self._size = rows[-1].seq + 1

    async def close(self, connection: AsyncConnection) -> None:
        """Count the entries that came since `walk`, in a snapshot. Raises `EntriesMoved` if entries
        that were counted are gone, and `Uncountable` for an entry that can't be read."""
        tenant, size = {"tenant": self._tenant_id}, await log_size(connection, self._tenant_id)
        first = (await connection.execute(_FIRST, tenant)).scalar()
        # A log that was empty may have its first entries by now.
        if first != self._first and (self._first is not None or self._size):
            raise EntriesMoved
        wanted = {**tenant, "at": self._size, "until": size, "rows": size - self._size}
        rows = (await connection.execute(_FORWARD, wanted)).all()
        self._take(self._counted(rows))

    async def _left(self) -> int:
        async with self._store.reading(self._tenant_id) as connection:
            return await log_size(connection, self._tenant_id) - self._size

    async def _page(self, query: Any, at: int) -> Sequence[Row[Any]]:
        wanted = {"tenant": self._tenant_id, "at": at, "until": 1 << 62, "rows": RECOUNTED_ROWS}
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
    """Count an entry in the same way as when it was appended."""
    index, ts, marks = index_of(entry), micros(entry["ts"]), marks_of(entry)
    if TIME_DOUBTFUL in marks:
        counts.add_doubtful(ts)
    if index.decision is None:
        return
    if index.agent_role is None or index.source_id is None:
        raise ValueError("a decision without a role or a source")
    counts.add(counted_index(index, ts, marks), entry["pub"]["request"]["source_type"])


_ROW: Select[Any] = select(log_entries.c.seq, log_entries.c.eid, log_entries.c.entry).where(
    of_tenant(log_entries)
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
_FIRST = select(func.min(log_entries.c.seq)).where(of_tenant(log_entries))


SECRET_BYTES = 32
SLACK = HOUR
"""Microseconds before a time bucket expires during which it is not compared, because another
process may have dropped it already."""
_Cell = tuple[int, int]  # dimension, bucket


class Difference(NamedTuple):
    """A dimension and time bucket whose stored counts differ from the log. `stored` and `counted`
    are the numbers of allowed and denied decisions, summed over all values of the dimension. The
    two may be equal although the counts of single values differ."""

    dimension: Dimension
    bucket: int
    stored: tuple[int, int]
    counted: tuple[int, int]

    def text(self) -> str:
        when = "" if self.dimension not in BUCKETS else f", bucket {self.bucket}"
        return (
            f"the counts by `{self.dimension.name}`{when} are {self.stored[0]} allowed and "
            f"{self.stored[1]} denied, and those of the entries {self.counted[0]} and "
            f"{self.counted[1]}" + (", of other values" if self.stored == self.counted else "")
        )


class CountSums:
    """The weighted sums of one set of counts, by dimension and time bucket. Buckets below a
    dimension's floor in `floors` are left out."""

    def __init__(self, secret: bytes, floors: Mapping[int, int]) -> None:
        self._floors = floors
        # For each cell: both sums with weights, and both without.
        self.cells: dict[_Cell, list[int]] = {}

        @lru_cache(maxsize=4096)
        def weight(value: str) -> int:
            digest = hashlib.blake2b(value.encode(), key=secret, digest_size=16).digest()
            return int.from_bytes(digest)

        self._weight = weight

    def add(self, facet: int, value: str, bucket: int, allowed: int, denied: int) -> None:
        """Add the counts of one value. Raises `TypeError` or `AttributeError` unless all arguments
        have the declared types, which SQLite does not enforce."""
        if bucket < self._floors.get(facet, bucket):
            return
        weight = self._weight(value)
        cell = self.cells.setdefault((facet, bucket), [0, 0, 0, 0])
        for at, count in enumerate((allowed, denied)):
            if type(count) is not int:
                raise TypeError(f"`{count!r}` is no count")
            cell[at] += count * weight
            cell[at + 2] += count


def floors(now: int, cutoff: int) -> dict[int, int]:
    """Return the first time bucket to compare for each dimension. Earlier buckets are dropped at
    about `now`, or also count purged entries from before `cutoff` (both in microseconds)."""
    first = {}
    for dimension, kept in KEPT.items():
        width = BUCKETS[dimension]
        first[int(dimension)] = max((now - kept + SLACK) // width, -(-cutoff // width))
    return first


def difference(
    stored: CountSums, counted: CountSums, first: Mapping[int, int]
) -> Difference | None:
    """Return the first difference between the stored counts and the log in the buckets from `first`
    on; None if there is none. Dimensions that this version does not know are left out."""
    nothing = [0, 0, 0, 0]
    for cell in sorted(stored.cells.keys() | counted.cells.keys()):
        facet, bucket = cell
        if facet not in KNOWN or bucket < first.get(facet, bucket):
            continue
        here, there = stored.cells.get(cell, nothing), counted.cells.get(cell, nothing)
        if here != there:
            totals = (here[2], here[3]), (there[2], there[3])
            return Difference(Dimension(facet), bucket, *totals)
    return None


KNOWN = frozenset(map(int, Dimension))


COMPARED_ROWS = 500
"""Stored counts that are read between two turns of the event loop."""


async def compare_counts(
    store: Store,
    tenant_id: str,
    secret: bytes,
    rest: float,
    beside: Callable[[], Awaitable[None]] | None = None,
) -> Finding | None:
    """Compare the stored counts of a log, and the counters of its spools (`find_ahead`), with its
    entries. Returns the finding, or None if they agree. `secret` is drawn for this call; `rest` and
    `beside` are as in `Recount`. Raises `EntriesMoved` if a purge came between."""
    counted = CountSums(secret, floors(store.clock.now(), 0))

    def take(counts: BatchCounts) -> None:
        for facet, value, bucket, allowed, denied, _ in counts.rows()[0]:
            counted.add(facet, value, bucket, allowed, denied)

    spools = SpoolEnds()
    recount = Recount(store, tenant_id, take, rest, beside, spools.see)
    try:
        await recount.walk()
        async with store.snapshot(tenant_id) as connection:
            await recount.close(connection)
            cutoff = await purged_before(connection, tenant_id)
            rows = await counters(connection, tenant_id)
            first = floors(store.clock.now(), cutoff)
            stored = CountSums(secret, first)
            await _add_stored(connection, tenant_id, stored, rest)
    except Uncountable as error:
        unread = f"seq {error.seq}: can't be read as an entry, so the counts can't be compared"
        return Finding(error.seq, Reason.NOT_AN_ENTRY, unread, error.eid)
    except (TypeError, AttributeError):
        return Finding(None, Reason.COLUMN_MISMATCH, "a count is no number, or of no text")
    if ahead := find_ahead(rows, spools.ends, recount.size, purged=cutoff > 0):
        return ahead
    found = difference(stored, counted, first)
    return None if found is None else Finding(None, Reason.COLUMN_MISMATCH, found.text())


async def purged_before(connection: AsyncConnection, tenant_id: str) -> int:
    """Return the time (microseconds) before which entries were purged, 0 if none were. Time buckets
    still count purged entries, so those that reach before it can't be compared."""
    cutoff = (await connection.execute(_CUTOFF, {"tenant": tenant_id})).scalar()
    # The verification of the anchor finds one of another type.
    return cutoff if isinstance(cutoff, int) else 0


async def _add_stored(
    connection: AsyncConnection, tenant_id: str, sums: CountSums, rest: float
) -> None:
    async for rows in stored_counts(connection, tenant_id):
        began = time.thread_time()
        for row in rows:
            sums.add(*row)
        await asyncio.sleep(rest * (time.thread_time() - began))


async def stored_counts(
    connection: AsyncConnection, tenant_id: str
) -> AsyncIterator[Sequence[Any]]:
    """Yield the stored counts in pages. A row has the dimension, value, time bucket, and the
    numbers of allowed and denied decisions."""
    wanted = {"tenant": tenant_id, "facet": -1, "value": "", "bucket": 0}
    while rows := (await connection.execute(_STORED, wanted)).all():
        yield rows
        wanted |= {"facet": rows[-1].facet, "value": rows[-1].value, "bucket": rows[-1].bucket}


_KEY = (tallies.c.facet, tallies.c.value, tallies.c.bucket)
_STORED = (
    select(*_KEY, tallies.c.allowed, tallies.c.denied)
    .where(
        of_tenant(tallies),
        tuple_(*_KEY) > tuple_(bindparam("facet"), bindparam("value"), bindparam("bucket")),
    )
    .order_by(*_KEY)
    .limit(COMPARED_ROWS)
)
_CUTOFF = select(func.max(purges.c.purged_before)).where(of_tenant(purges))
