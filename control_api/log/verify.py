"""Whether a tenant's log is what it was: every entry read back and held against itself, its
columns, its openings and the head.

The log goes on while it is walked: what is judged is the log up to the head as it stood at the
start. Knows SQL and pages; what makes an entry right is known to `policies.verify`.
"""

import asyncio
from operator import index
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.index_check import Fault, Spans, unindexed
from control_api.store.chain import NO_OPENINGS, user_of
from control_api.store.schema import log_entries, log_heads, openings
from control_api.store.store import Store
from policies import stored
from policies import verify as proof
from policies.entry import Index
from policies.ground.canonical import rfc3339

PAGE_BYTES = 4 * 1024 * 1024
"""What a page should weigh: memory stays flat, whatever an entry weighs."""
FIRST_ROWS, MOST_ROWS = 64, 2000
BEFORE_ALL = -(2**63)
STRETCH = 50
"""Rows between two turns of the event loop: about a millisecond."""


async def verify(store: Store, tenant_id: str) -> dict[str, Any]:
    """The answer of contract section 4. `ReadFault` where the database does not answer."""
    async with store.reading() as connection:
        # In this order: what is appended in between lies below the head that is read last.
        beyond = await _last(connection, tenant_id)
        row = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
    verifier = proof.Verifier("" if row is None else row.log)
    head, fault = _head(row, beyond)
    if head is not None:
        fault = await _walk(store, tenant_id, verifier, head.size)
    report = verifier.finish(head if fault is None else None)
    if report.valid and fault is None and head is not None and beyond >= head.size:
        fault = (str(beyond), f"seq {beyond}: is there, and the head counts {head.size} entries")
    return _answer(report, fault, store.clock.now())


async def _last(connection: AsyncConnection, tenant_id: str) -> int:
    """The last seq of which there is a row, an entry's or an opening's; -1 without any."""
    last = -1
    for table in (log_entries, openings):
        query = select(func.max(table.c.seq)).where(table.c.tenant_id == tenant_id)
        found = (await connection.execute(query)).scalar()
        last = max(last, -1 if found is None else int(found))
    return last


def _head(row: Row[Any] | None, last: int) -> tuple[proof.Head | None, Fault | None]:
    if row is None:
        # A log begins with its first entry.
        return None, None if last < 0 else ("0", "the log has entries and no head")
    try:
        head = proof.Head(index(row.size), row.last_leaf, _time(row.last_ts), row.frontier)
    except (TypeError, ValueError, OverflowError):
        return None, ("0", "the head can't be read")
    return head, None


def _time(last_ts: int) -> str:
    return rfc3339(last_ts) if last_ts else ""


async def _walk(store: Store, tenant_id: str, verifier: proof.Verifier, size: int) -> Fault | None:
    """Feed every entry below `size`; a fault that the verifier does not know of. Each page is a
    read of its own: a reader that stayed would keep SQLite from folding its WAL into the file."""
    after, most, spans = BEFORE_ALL, FIRST_ROWS, Spans(size)
    while True:
        async with store.reading() as connection:
            page = {"tenant": tenant_id, "size": size, "after": after, "rows": most}
            rows = (await connection.execute(_PAGE, page)).all()
            if not rows:
                return await spans.fault(connection, tenant_id)
            first, last = rows[0].seq, rows[-1].seq
            hidden = await unindexed(connection, tenant_id, first, last + 1, size)
        for at in range(0, len(rows), STRETCH):
            stretch = rows[at : at + STRETCH]
            good = next((n for n, row in enumerate(stretch) if not _names_its_user(row)), None)
            if not verifier.feed_all(map(_row, stretch[:good])):
                return None
            if good is not None:
                row = stretch[good]
                return (row.eid, f"seq {row.seq}: the column `user_id` is not what was opened")
            await asyncio.sleep(0)
        if hidden:
            return hidden
        spans.feed(rows)
        weight = sum(len(row.entry) + len(row.openings or NO_OPENINGS) for row in rows)
        after, most = last, max(1, min(PAGE_BYTES * len(rows) // weight, MOST_ROWS))


def _names_its_user(row: Row[Any]) -> bool:
    """The one column of which the entry knows nothing. Openings that can't be read are the
    verifier's to find."""
    try:
        return bool(row.user_id == user_of(row.openings or NO_OPENINGS))
    except (ValueError, TypeError, LookupError, AttributeError):
        return True


def _row(row: Any) -> stored.Row:
    return stored.Row(row[0], row[1], row[2], Index(*row[3:-2]), row[-1] or NO_OPENINGS)


def _answer(report: proof.Report, fault: Fault | None, now: int) -> dict[str, Any]:
    broken_at, reason = fault or (report.broken_at, report.reason)
    return {
        "valid": broken_at is None,
        "total": report.total,
        "events": report.events,
        "first_seq": report.first_seq,
        "last_seq": report.last_seq,
        "head_hash": report.head_hash,
        "broken_at": broken_at,
        "reason": reason,
        "anchor": None,
        "checkpoint": None,
        "checked_at": rfc3339(now),
    }


_HEAD = select(log_heads).where(log_heads.c.tenant_id == bindparam("tenant"))
_PAGE: Select[Any] = (
    select(
        log_entries.c.seq,
        log_entries.c.entry,
        log_entries.c.hash,
        *(log_entries.c[name] for name in Index._fields),
        openings.c.user_id,
        openings.c.openings,
    )
    .outerjoin(
        openings,
        and_(openings.c.tenant_id == log_entries.c.tenant_id, openings.c.seq == log_entries.c.seq),
    )
    .where(
        log_entries.c.tenant_id == bindparam("tenant"),
        log_entries.c.seq > bindparam("after"),
        log_entries.c.seq < bindparam("size"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
