"""Queries the anchors of purged logs (an anchor records where a purge cut the log), and removes the
purged rows in steps.

    latest_anchor(connection, tenant_id)                the anchor, or None if nothing was purged
    add(...), cover(...)                                begin a purge
    plan(connection, tenant_id, anchor, limit)          plan the next step, without a lock
    remove(connection, tenant_id, anchor, step, now)    run it; the last one sets `finished_at`

INVARIANT: from the commit that creates an anchor, no reader sees entries below its size, whether
their rows still exist or not (`first_kept`). Verifies nothing: `control_api.log.purge` proves the
entries before it purges them.
"""

from operator import index
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.counters import BatchCounts
from control_api.store.log.index import FACETS, removal_of_range
from control_api.store.queries import sidecar_rows
from control_api.store.schema.log import (
    entries_with_openings,
    log_entries,
    log_heads,
    log_spans,
    openings,
    purges,
)
from control_api.store.schema.statements import of_tenant
from policies.trail.entry import Index
from policies.trail.removal import Anchor, Purged


async def latest_anchor(connection: AsyncConnection, tenant_id: str) -> Anchor | None:
    """Return the anchor of the last purge, or None if nothing was purged. Raises `ValueError` or
    `TypeError` if the row is not a valid anchor."""
    row = (await connection.execute(NEWEST, {"tenant": tenant_id})).one_or_none()
    return None if row is None else anchor_of(row)


async def purged_size(connection: AsyncConnection, tenant_id: str) -> int:
    """Return how many entries were purged. Returns 0 also if the row is not a valid anchor, which a
    verification finds by itself."""
    try:
        anchor = await latest_anchor(connection, tenant_id)
    except (ValueError, TypeError):
        return 0
    return 0 if anchor is None else anchor.purged.size


def first_kept(tenant: str | ColumnElement[str]) -> ScalarSelect[int]:
    """Return a subquery for the first seq that readers of the tenant's log may see."""
    size = func.coalesce(func.max(purges.c.tree_size), 0)
    return select(size).where(of_tenant(purges, tenant)).scalar_subquery()


async def add(connection: AsyncConnection, tenant_id: str, anchor: Anchor) -> None:
    """Replace the previous anchor. Nothing is lost: its `purge` entry in the log has the same
    content."""
    purged = anchor.purged
    await connection.execute(delete(purges).where(of_tenant(purges, tenant_id)))
    values = {
        "tenant_id": tenant_id,
        "seq": anchor.seq,
        "tree_size": purged.size,
        "root_hash": purged.root,
        "frontier": purged.frontier,
        "last_hash": purged.last_leaf,
        "purged_before": purged.cutoff,
        "purged_count": purged.count,
        "purged_at": anchor.purged_at,
        "anchor_note": anchor.anchor_note,
        "cover_note": anchor.cover_note,
        "finished_at": anchor.finished_at,
    }
    await connection.execute(insert(purges).values(values))


async def cover(connection: AsyncConnection, tenant_id: str, seq: int, note: str) -> None:
    """Store the note of a checkpoint that covers the `purge` entry at `seq`, unless one is stored
    already."""
    await connection.execute(
        update(purges)
        .where(of_tenant(purges, tenant_id), purges.c.seq == seq, purges.c.cover_note.is_(None))
        .values(cover_note=note)
    )


class RowsGone(Exception):
    """the rows to remove no longer exist: another replica removes them too"""


class RemovalStep(NamedTuple):
    """One step of removing purged rows: the oldest `entries` entries, all below `until`, and their
    `counts`. `indexed` holds the ranges of index rows to delete: tenant, facet, value, first and
    last seq. `last` is True if nothing is left to remove afterwards."""

    until: int
    entries: int
    indexed: list[tuple[str, int, str, int, int]]
    counts: BatchCounts
    last: bool


async def plan(
    connection: AsyncConnection, tenant_id: str, anchor: Anchor, limit: int
) -> RemovalStep:
    """Plan the removal of the next `limit` entries below the anchor. Only reads, so that no writer
    waits."""
    size = anchor.purged.size
    wanted = {"tenant": tenant_id, "until": size, "rows": limit}
    rows = (await connection.execute(_ROWS, wanted)).all()
    counts = BatchCounts()
    spans: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        at = Index(*row[3:])
        if at.decision is not None:
            counts.add(at, orjson.loads(row.entry)["pub"]["request"]["source_type"])
        for place, name in enumerate(FACETS):
            value = row.user_id if name == "user_id" else getattr(at, name)
            if value is not None:
                spans.setdefault((place, value), [row.seq, 0])[1] = row.seq
    last = len(rows) < limit
    # The index is sorted by value, so one range delete removes all of a step's rows of one value.
    indexed = [
        (tenant_id, place, value, first, to)
        for (place, value), (first, to) in sorted(spans.items())
    ]
    return RemovalStep(size if last else rows[-1].seq + 1, len(rows), indexed, counts, last)


def remove(
    connection: Connection, tenant_id: str, anchor: Anchor, step: RemovalStep, now: int
) -> None:
    """Remove a step's entries with all rows that belong to them, and subtract their counts, in one
    transaction. Raises `RowsGone` if some no longer exist; the transaction must then be rolled
    back."""
    wanted = {"tenant": tenant_id}
    # Every change of the counts holds this lock. Of two replicas that plan the same step, one
    # removes its rows, and the other finds them gone.
    lock(connection, tenant_id)
    row = connection.execute(NEWEST, wanted).one_or_none()
    # INVARIANT: no row is removed before its anchor has a note that covers the purge. Without the
    # note the log would look as if its beginning had been deleted by hand.
    if row is None or row.seq != anchor.seq or row.cover_note is None:
        raise RowsGone
    below = {**wanted, "until": step.until}
    # The plan's counts are right only if exactly the planned entries are removed.
    if connection.execute(_ENTRIES, below).rowcount != step.entries:
        raise RowsGone
    for statement in _BESIDE:
        connection.execute(statement, below)
    if step.indexed:
        connection.exec_driver_sql(removal_of_range(connection.dialect), step.indexed)
    step.counts.subtract(connection, tenant_id)
    if step.last:
        sidecar_rows.forget_acknowledgements(connection, tenant_id, step.until)
        connection.execute(_FINISH, {**wanted, "at": anchor.seq, "now": now})


def lock(connection: Connection, tenant_id: str) -> None:
    """Lock the head of the tenant's log until the transaction ends."""
    connection.execute(_LOCK, {"tenant": tenant_id})


def anchor_of(row: Row[Any]) -> Anchor:
    """Return the anchor in a row. SQLite does not enforce column types, so a value of the wrong
    type is refused here, with `ValueError` or `TypeError`."""
    purged = Purged(
        index(row.tree_size),
        bytes(memoryview(row.root_hash)),
        bytes(memoryview(row.frontier)),
        bytes(memoryview(row.last_hash)),
        index(row.purged_before),
        index(row.purged_count),
    )
    cover, finished = row.cover_note, row.finished_at
    return Anchor(
        index(row.seq),
        purged,
        index(row.purged_at),
        str(row.anchor_note),
        None if cover is None else str(cover),
        None if finished is None else index(finished),
    )


NEWEST = select(purges).where(of_tenant(purges)).order_by(purges.c.seq.desc()).limit(1)
_LOCK = select(log_heads.c.size).where(of_tenant(log_heads)).with_for_update()
_ROWS = (
    select(
        log_entries.c.seq,
        log_entries.c.entry,
        openings.c.user_id,
        *(log_entries.c[name] for name in Index._fields),
    )
    .select_from(entries_with_openings)
    .where(of_tenant(log_entries), log_entries.c.seq < bindparam("until"))
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
_ENTRIES = delete(log_entries).where(of_tenant(log_entries), log_entries.c.seq < bindparam("until"))
_BESIDE = (
    delete(openings).where(of_tenant(openings), openings.c.seq < bindparam("until")),
    # If the cut divides a block, its span stays, because it covers the entries that are left.
    delete(log_spans).where(of_tenant(log_spans), log_spans.c.until_seq <= bindparam("until")),
)
_FINISH = (
    update(purges)
    .where(of_tenant(purges), purges.c.seq == bindparam("at"))
    .values(finished_at=bindparam("now"))
)
