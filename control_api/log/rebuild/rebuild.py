"""Rebuilds what lists and counts read of one log: columns, search index and counts.

    rows      columns and index, group by group
    spans     the times of the index's blocks
    counts    the counts, from all entries
    end       an entry that says so, and a verification that begins anew

Each step is short, so evaluations go on beside it. It changes only what is wrong: a second run
changes nothing, and one that was killed is continued by the next.
"""

from collections.abc import Callable
from dataclasses import dataclass

from control_api.log.rebuild.change import RebuildChanges
from control_api.log.rebuild.counts import rebuild_counts
from control_api.log.rebuild.rows import rebuild_group, rebuild_spans
from control_api.store.log import index as log_index
from control_api.store.queries import redactions
from control_api.store.queries.purges import purged_size
from control_api.store.store import Store

TOLD = 20_000
"""Entries after which the progress is told."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """How many rows of entries, spans of the index and counts were changed, how many entries are
    damaged themselves and were left as they are (the counts then too), and the entry that records
    it; None if nothing was changed."""

    rows: int
    spans: int
    counts: int
    damaged: int
    seq: int | None


async def rebuild(
    store: Store, tenant_id: str, new_id: Callable[[], str], report: Callable[[str], None]
) -> Rebuilt:
    """Rebuild one log. Raises `EntriesMoved` if a purge does not end, and `Uncountable` if an entry
    can't be read: then the counts are left as they are."""
    changes = RebuildChanges(store, tenant_id, new_id)
    async with store.reading(tenant_id) as connection:
        size = await redactions.log_size(connection, tenant_id)
        at = await purged_size(connection, tenant_id)
    step = log_index.STEP
    at, rows, damaged, told = at - at % step, 0, 0, 0
    while at < size:
        changed, broken = await rebuild_group(store, tenant_id, changes, at)
        at, rows, damaged, told = at + step, rows + changed, damaged + broken, told + step
        if told >= TOLD:
            told = 0
            report(f"{tenant_id}: {min(at, size)} of {size} entries, {rows} rows changed")
    spans = await rebuild_spans(store, tenant_id, changes)
    # What a damaged entry says is not known, so neither is what to count.
    counts = 0 if damaged else await rebuild_counts(store, tenant_id, changes, report)
    seq = await changes.end({"rows": rows, "spans": spans, "counts": counts, "damaged": damaged})
    return Rebuilt(rows, spans, counts, damaged, seq)
