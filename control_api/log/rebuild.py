"""Rebuilds the data of one log that lists and counts are read from: columns, search index and
counts.

    rows      columns and index, group by group
    spans     the times of the index's blocks
    counts    the counts, from all entries
    end       an entry that records the rebuild, and a verification that begins anew

Each step is short, so evaluations go on beside it. It changes only what is wrong: a second run
changes nothing, and one that was killed is continued by the next.

The stored counts and those that the entries give are taken from one snapshot, and the difference is
added to the stored ones. Appending and purging only add and subtract too, so the difference is
right whenever it is added. A log may count millions of sessions: then the entries are counted
several times, each time for a part of the values.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.counts import (
    KNOWN,
    EntriesMoved,
    Recount,
    floors,
    purged_before,
    stored_counts,
)
from control_api.log.rebuild_rows import RebuildChanges, rebuild_group, rebuild_spans
from control_api.store.counters.counters import BatchCounts, adjust
from control_api.store.log import index as log_index
from control_api.store.queries import redactions
from control_api.store.queries.purges import purged_size
from control_api.store.schema.log import tallies
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.trail.findings import Finding

VALUES = 50_000
"""The approximate number of counts that are in memory at a time."""
BATCH = 200
"""Counts changed in one transaction, which takes some milliseconds."""
MAX_TRIES_DURING_PURGES = 10
"""The number of times that the entries are counted if a purge comes between. Purges run hourly."""
PAUSE = 5.0
"""Seconds to wait before the entries are counted again."""
_Key = tuple[int, str, int]
_Counts = dict[_Key, list[int]]  # allowed, denied, the time of the last


async def rebuild_counts(
    store: Store, tenant_id: str, changes: RebuildChanges, report: Callable[[str], None]
) -> int:
    """Rebuild all counts; return how many were wrong. Raises `EntriesMoved` if a purge went on in
    every try, and `Uncountable` if an entry can't be read."""
    async with store.reading(tenant_id) as connection:
        stored = (await connection.execute(_MANY, {"tenant": tenant_id})).scalar_one()
    parts, changed = 1 + stored // VALUES, 0
    for part in range(parts):
        report(f"{tenant_id}: counting the entries, {part + 1} of {parts}")
        wrong = await _wrong(store, tenant_id, part, parts)
        for at in range(0, len(wrong), BATCH):
            rows = wrong[at : at + BATCH]

            async def work(connection: AsyncConnection, rows: list[Any] = rows) -> int:
                await connection.run_sync(adjust, tenant_id, rows)
                return len(rows)

            changed += await changes.make(work)
    return changed


async def _wrong(store: Store, tenant_id: str, part: int, parts: int) -> list[tuple[Any, ...]]:
    """Return the corrections to the counts of a part of the values. Each has the count's key, the
    allowed and denied decisions to add, and the last time."""
    for left in reversed(range(MAX_TRIES_DURING_PURGES)):
        try:
            return await _differences(store, tenant_id, part, parts)
        except EntriesMoved:
            if not left:
                raise
        await asyncio.sleep(PAUSE)
    raise AssertionError("unreachable")


async def _differences(
    store: Store, tenant_id: str, part: int, parts: int
) -> list[tuple[Any, ...]]:
    counted: _Counts = {}
    begun = floors(store.clock.now(), 0)

    def take(counts: BatchCounts) -> None:
        for facet, value, bucket, allowed, denied, last in counts.rows()[0]:
            if crc32(value.encode()) % parts == part and bucket >= begun.get(facet, bucket):
                held = counted.setdefault((facet, value, bucket), [0, 0, 0])
                held[:] = held[0] + allowed, held[1] + denied, max(held[2], last)

    recount = Recount(store, tenant_id, take, 0.0)
    await recount.walk()
    async with store.snapshot(tenant_id) as connection:
        await recount.close(connection)
        first = floors(store.clock.now(), await purged_before(connection, tenant_id))
        stored = await _stored(connection, tenant_id, part, parts)
    return sorted(_compared(counted, stored, first))


def _compared(
    counted: _Counts, stored: Mapping[_Key, tuple[int, int]], first: Mapping[int, int]
) -> list[tuple[Any, ...]]:
    found = []
    for key in counted.keys() | stored.keys():
        if key[2] < first.get(key[0], key[2]):
            continue
        allowed, denied, last = counted.get(key, (0, 0, 0))
        there = stored.get(key, (0, 0))
        if there != (allowed, denied):
            found.append((*key, allowed - there[0], denied - there[1], last))
    return found


async def _stored(
    connection: AsyncConnection, tenant_id: str, part: int, parts: int
) -> dict[_Key, tuple[int, int]]:
    found: dict[_Key, tuple[int, int]] = {}
    async for rows in stored_counts(connection, tenant_id):
        for *key, allowed, denied in rows:
            if key[0] in KNOWN and crc32(key[1].encode()) % parts == part:
                found[tuple(key)] = (_number(allowed), _number(denied))
    return found


def _number(count: object) -> int:
    """Return a stored count as the database adds to it. SQLite, which does not enforce types, takes
    text for 0."""
    return count if isinstance(count, int) else 0


_MANY = select(func.count()).where(of_tenant(tallies))


REPORTED = 20_000
"""Entries after which the progress is reported again."""
NAMED = 20
"""The most damaged entries that are named in the result."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild: how many rows of entries, spans of the index and counts were
    changed, and how many entries are damaged themselves. Damaged entries are left as they are, and
    the counts then too. `seq` is the entry that records the rebuild, None if nothing was changed.
    `findings` names the first `NAMED` damaged entries."""

    rows: int
    spans: int
    counts: int
    damaged: int
    seq: int | None
    findings: tuple[Finding, ...] = ()


async def rebuild(
    store: Store, tenant_id: str, new_id: Callable[[], str], report: Callable[[str], None]
) -> Rebuilt:
    """Rebuild one log. Raises `EntriesMoved` if a purge does not end, and `Uncountable` if an entry
    can't be read; then the counts are left as they are."""
    changes = RebuildChanges(store, tenant_id, new_id)
    async with store.reading(tenant_id) as connection:
        size = await redactions.log_size(connection, tenant_id)
        at = await purged_size(connection, tenant_id)
    step = log_index.STEP
    at, rows, damaged, since = at - at % step, 0, 0, 0
    findings: list[Finding] = []
    while at < size:
        changed, broken = await rebuild_group(store, tenant_id, changes, at)
        at, rows, damaged, since = (at + step, rows + changed, damaged + len(broken), since + step)
        findings += broken[: NAMED - len(findings)]
        if since >= REPORTED:
            since = 0
            report(f"{tenant_id}: {min(at, size)} of {size} entries, {rows} rows changed")
    spans = await rebuild_spans(store, tenant_id, changes)
    # What a damaged entry says is not known, so neither is what to count.
    counts = 0 if damaged else await rebuild_counts(store, tenant_id, changes, report)
    seq = await changes.end({"rows": rows, "spans": spans, "counts": counts, "damaged": damaged})
    return Rebuilt(rows, spans, counts, damaged, seq, tuple(findings))
