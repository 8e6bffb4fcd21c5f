"""Compares the stored counts of a log with its entries, which are the truth.

The counts change with every entry, so each of them is right at any moment: the comparison takes
them from one snapshot (`recount`). What differs was changed in the database by somebody else.
Changes nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from sqlalchemy import bindparam, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.counter_check import SpoolEnds, counters, find_ahead
from control_api.log.counts.recount import Recount, Uncountable
from control_api.log.counts.sums import CountSums, difference, floors
from control_api.store.counters.counters import BatchCounts
from control_api.store.schema.log import purges, tallies
from control_api.store.store import Store
from policies.trail.findings import Finding, Reason

ROWS = 500
"""Counts read between two turns of the event loop."""


async def compare_counts(
    store: Store,
    tenant_id: str,
    secret: bytes,
    rest: float,
    beside: Callable[[], Awaitable[None]] | None = None,
) -> Finding | None:
    """How the counts differ from the entries, those of the spools' records too (`counter_check`);
    None if they don't. `secret` is drawn for this call;
    `rest` and `beside` are as in `Recount`. Raises `EntriesMoved` if a purge came between."""
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
    """The time before which entries were purged (microseconds), 0 if none were: time buckets keep
    counting these."""
    cutoff = (await connection.execute(_CUTOFF, {"tenant": tenant_id})).scalar()
    # The verification of the anchor finds one of another type.
    return cutoff if isinstance(cutoff, int) else 0


async def _add_stored(
    connection: AsyncConnection, tenant_id: str, sums: CountSums, rest: float
) -> None:
    after = (-1, "", 0)
    while True:
        page = dict(zip(("facet", "value", "bucket"), after, strict=True))
        rows = (await connection.execute(_STORED, {"tenant": tenant_id, **page})).all()
        began = time.thread_time()
        for row in rows:
            sums.add(*row)
        if len(rows) < ROWS:
            return
        after = rows[-1].facet, rows[-1].value, rows[-1].bucket
        await asyncio.sleep(rest * (time.thread_time() - began))


_KEY = (tallies.c.facet, tallies.c.value, tallies.c.bucket)
_STORED = (
    select(*_KEY, tallies.c.allowed, tallies.c.denied)
    .where(
        tallies.c.tenant_id == bindparam("tenant"),
        tuple_(*_KEY) > tuple_(bindparam("facet"), bindparam("value"), bindparam("bucket")),
    )
    .order_by(*_KEY)
    .limit(ROWS)
)
_CUTOFF = select(func.max(purges.c.purged_before)).where(purges.c.tenant_id == bindparam("tenant"))
