"""What retention has removed of each log, and the removal itself, a stretch at a time.

    found = await newest(connection, tenant_id)      the anchor, None where nothing was purged
    add(...), cover(...)                             a purge begins
    remove(connection, tenant_id, most, now)         rows go, until `finished_at` says that all have

INVARIANT: what lies below the newest anchor's size is gone for every reader from the commit that
made the anchor, whether its rows are still there or not (`first_kept`). Judges no log: that what
goes is what it was is for `control_api.log.purge` to see.
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

from control_api.store.log_index import FACETS
from control_api.store.schema import (
    log_entries,
    log_heads,
    log_index,
    log_spans,
    openings,
    purges,
)
from control_api.store.tally import Tally
from policies.entry import Index
from policies.purge import Anchor, Purged


async def newest(connection: AsyncConnection, tenant_id: str) -> Anchor | None:
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


class Removed(NamedTuple):
    """What a stretch removed, and whether nothing is left to remove."""

    entries: int
    finished: bool


def remove(connection: Connection, tenant_id: str, anchor: Anchor, most: int, now: int) -> Removed:
    """Remove up to `most` entries below the anchor, the oldest first, with all that stands beside
    them, and take back what was counted of them. Nothing where another anchor stands by now, or
    no checkpoint covers this one.

    One transaction, under the lock of the log's head as every change of the counts: two replicas
    that do this at once remove each entry once.
    """
    wanted: dict[str, Any] = {"tenant": tenant_id}
    lock(connection, tenant_id)
    row = connection.execute(_NEWEST, wanted).one_or_none()
    if (
        row is None
        or row.seq != anchor.seq
        or row.cover_note is None
        or row.finished_at is not None
    ):
        return Removed(0, True)
    size = anchor.purged.size
    rows = connection.execute(_ROWS, {**wanted, "until": size, "most": most}).all()
    finished = len(rows) < most
    until = size if finished else rows[-1].seq + 1
    _remove(connection, tenant_id, rows, until)
    if finished:
        connection.execute(_FINISH, {**wanted, "at": row.seq, "now": now})
    return Removed(len(rows), finished)


def lock(connection: Connection, tenant_id: str) -> None:
    """Hold the head of the tenant's log until the transaction ends."""
    connection.execute(_LOCK, {"tenant": tenant_id})


def _remove(connection: Connection, tenant_id: str, rows: Any, until: int) -> None:
    tally = Tally()
    spans: dict[tuple[int, str], list[int]] = {}
    for row in rows:
        at = Index(*row[3:])
        if at.decision is not None:
            tally.add(at, orjson.loads(row.entry)["pub"]["request"]["source_type"])
        for place, name in enumerate(FACETS):
            value = row.user_id if name == "user_id" else getattr(at, name)
            if value is not None:
                spans.setdefault((place, value), [row.seq, 0])[1] = row.seq
    tally.take_back(connection, tenant_id)
    if spans:
        # Of an index that has its rows in order of value: a stretch's rows of one value at a time.
        connection.execute(
            _UNINDEX,
            [
                {"tenant": tenant_id, "place": place, "said": value, "first": first, "last": last}
                for (place, value), (first, last) in sorted(spans.items())
            ],
        )
    below = {"tenant": tenant_id, "until": until}
    for statement in _BELOW:
        connection.execute(statement, below)


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
_UNINDEX = delete(log_index).where(
    log_index.c.tenant_id == bindparam("tenant"),
    log_index.c.facet == bindparam("place"),
    log_index.c.value == bindparam("said"),
    log_index.c.seq >= bindparam("first"),
    log_index.c.seq <= bindparam("last"),
)
_BELOW = [
    delete(table).where(table.c.tenant_id == bindparam("tenant"), column < bindparam("until"))
    for table, column in ((openings, openings.c.seq), (log_entries, log_entries.c.seq))
]
# A block that the cut goes through keeps its times: they are those of more than is left of it.
_BELOW.append(
    delete(log_spans).where(
        log_spans.c.tenant_id == bindparam("tenant"),
        log_spans.c.until_seq <= bindparam("until"),
    )
)
_FINISH = (
    update(purges)
    .where(purges.c.tenant_id == bindparam("tenant"), purges.c.seq == bindparam("at"))
    .values(finished_at=bindparam("now"))
)
