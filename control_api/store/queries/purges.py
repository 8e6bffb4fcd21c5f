"""What retention has removed of each log, and the removal itself, a stretch at a time.

    await latest_anchor(connection, tenant_id)       the anchor, None where nothing was purged
    add(...), cover(...)                             a purge begins
    plan(connection, tenant_id, anchor, most)        what goes next, as far as it can be told before
    remove(connection, tenant_id, anchor, planned)   it goes; the last time `finished_at` says so

INVARIANT: what lies below the newest anchor's size is gone for every reader from the commit that
made the anchor, whether its rows are still there or not (`first_kept`). Judges no log: that what
goes is what it was is for `control_api.log.purge` to see.
"""

from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
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
from control_api.store.log.index import FACETS
from control_api.store.schema.tables import log_entries, log_heads, log_spans, openings, purges
from policies.trail.entry import Index
from policies.trail.purge import Anchor, Purged


async def latest_anchor(connection: AsyncConnection, tenant_id: str) -> Anchor | None:
    """The anchor; `ValueError` or `TypeError` where the row holds none."""
    row = (await connection.execute(_NEWEST, {"tenant": tenant_id})).one_or_none()
    return None if row is None else _anchor(row)


def first_kept(tenant: str | ColumnElement[str]) -> ScalarSelect[int]:
    """The first seq that readers of the tenant's log may see, as a part of their statement."""
    size = func.coalesce(func.max(purges.c.tree_size), 0)
    return select(size).where(purges.c.tenant_id == tenant).scalar_subquery()


async def add(connection: AsyncConnection, tenant_id: str, anchor: Anchor) -> None:
    """The anchor, in the place of the one before: that one's `purge` entry says what it said."""
    purged = anchor.purged
    await connection.execute(delete(purges).where(purges.c.tenant_id == tenant_id))
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
    """The note that covers the `purge` entry at `seq`; the first one stays."""
    await connection.execute(
        update(purges)
        .where(purges.c.tenant_id == tenant_id, purges.c.seq == seq, purges.c.cover_note.is_(None))
        .values(cover_note=note)
    )


class RowsGone(Exception):
    """rows that were to be removed are gone: another replica removes them too"""


class Planned(NamedTuple):
    """The next `entries` that go, the oldest, all below `until`; what of the index and of the
    counts goes with them. `last` where nothing is left after them."""

    until: int
    entries: int
    indexed: list[tuple[str, int, str, int, int]]
    tally: BatchCounts
    last: bool


async def plan(connection: AsyncConnection, tenant_id: str, anchor: Anchor, most: int) -> Planned:
    """The next `most` entries below the anchor. Reads alone: whoever writes waits for nothing."""
    size = anchor.purged.size
    wanted = {"tenant": tenant_id, "until": size, "most": most}
    rows = (await connection.execute(_ROWS, wanted)).all()
    tally = BatchCounts()
    spans: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        at = Index(*row[3:])
        if at.decision is not None:
            tally.add(at, orjson.loads(row.entry)["pub"]["request"]["source_type"])
        for place, name in enumerate(FACETS):
            value = row.user_id if name == "user_id" else getattr(at, name)
            if value is not None:
                spans.setdefault((place, value), [row.seq, 0])[1] = row.seq
    last = len(rows) < most
    # The index has its rows in order of value: a stretch's rows of one value go at a time.
    indexed = [
        (tenant_id, place, value, first, to)
        for (place, value), (first, to) in sorted(spans.items())
    ]
    return Planned(size if last else rows[-1].seq + 1, len(rows), indexed, tally, last)


def remove(
    connection: Connection, tenant_id: str, anchor: Anchor, planned: Planned, now: int
) -> None:
    """Remove what was planned, with all that stands beside it, and take back what was counted of
    it. `RowsGone`, and the transaction must be rolled back, where it is not all there any more.

    One transaction, under the lock of the log's head as every change of the counts: of two replicas
    that plan the same, one removes it.
    """
    wanted = {"tenant": tenant_id}
    lock(connection, tenant_id)
    row = connection.execute(_NEWEST, wanted).one_or_none()
    if row is None or row.seq != anchor.seq or row.cover_note is None:
        raise RowsGone
    below = {**wanted, "until": planned.until}
    if connection.execute(_ENTRIES, below).rowcount != planned.entries:
        raise RowsGone
    for statement in _BESIDE:
        connection.execute(statement, below)
    if planned.indexed:
        connection.exec_driver_sql(_unindexing(connection.dialect), planned.indexed)
    planned.tally.take_back(connection, tenant_id)
    if planned.last:
        connection.execute(_FINISH, {**wanted, "at": anchor.seq, "now": now})


def lock(connection: Connection, tenant_id: str) -> None:
    """Hold the head of the tenant's log until the transaction ends."""
    connection.execute(_LOCK, {"tenant": tenant_id})


@lru_cache(maxsize=4)
def _unindexing(dialect: Dialect) -> str:
    """Of rows of one value, from one seq to another."""
    marks = ("?",) * 5 if dialect.name == "sqlite" else ("$1", "$2", "$3", "$4", "$5")
    tests = ("tenant_id =", "facet =", "value =", "seq >=", "seq <=")
    where = " AND ".join(f"{test} {mark}" for test, mark in zip(tests, marks, strict=True))
    return f"DELETE FROM log_index WHERE {where}"  # noqa: S608  # of constants


def _anchor(row: Row[Any]) -> Anchor:
    """SQLite keeps whatever is put into a column: what is no number or no bytes is refused here."""
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


_NEWEST = (
    select(purges)
    .where(purges.c.tenant_id == bindparam("tenant"))
    .order_by(purges.c.seq.desc())
    .limit(1)
)
_LOCK = (
    select(log_heads.c.size).where(log_heads.c.tenant_id == bindparam("tenant")).with_for_update()
)
_ROWS = (
    select(
        log_entries.c.seq,
        log_entries.c.entry,
        openings.c.user_id,
        *(log_entries.c[name] for name in Index._fields),
    )
    .outerjoin(
        openings,
        (openings.c.tenant_id == log_entries.c.tenant_id) & (openings.c.seq == log_entries.c.seq),
    )
    .where(
        log_entries.c.tenant_id == bindparam("tenant"),
        log_entries.c.seq < bindparam("until"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("most"))
)
_ENTRIES = delete(log_entries).where(
    log_entries.c.tenant_id == bindparam("tenant"), log_entries.c.seq < bindparam("until")
)
_BESIDE = (
    delete(openings).where(
        openings.c.tenant_id == bindparam("tenant"), openings.c.seq < bindparam("until")
    ),
    # A block that the cut goes through keeps its times: they are those of more than is left of it.
    delete(log_spans).where(
        log_spans.c.tenant_id == bindparam("tenant"),
        log_spans.c.until_seq <= bindparam("until"),
    ),
)
_FINISH = (
    update(purges)
    .where(purges.c.tenant_id == bindparam("tenant"), purges.c.seq == bindparam("at"))
    .values(finished_at=bindparam("now"))
)
