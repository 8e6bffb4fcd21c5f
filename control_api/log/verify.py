"""Whether a tenant's log is what it was: every entry read back and held against itself, its
columns, its openings and the head; from the anchor on, where retention has removed what was before.

The log goes on while it is walked: what is judged is the log up to the head as it stood at the
start. A purge may begin meanwhile, and take away what was still to be walked: then the walk begins
again, behind it. Knows what is answered; `walk` and `anchor_check` know how it is found.
"""

from collections.abc import Collection
from operator import index
from typing import Any, NamedTuple

from sqlalchemy import Row, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.anchor_check import AnchorWatch, below
from control_api.log.index_check import Fault
from control_api.log.scan import LogRange, scan
from control_api.store.queries.purges import latest_anchor
from control_api.store.schema.tables import log_entries, log_heads, openings
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.trail import verify as proof
from policies.trail.purge import Anchor

TRIES = 5
"""Purges come hourly; a walk that meets one after the other is told what it found at last."""


class LogSnapshot(NamedTuple):
    """How a log stands as a walk over it begins. `beyond` is the last seq of which there is a row;
    `odd` what is wrong with the anchor's row or with what stands below it."""

    beyond: int
    anchor: Anchor | None
    odd: Fault | None
    head: Row[Any] | None


async def verify(store: Store, tenant_id: str, publics: Collection[bytes] = ()) -> dict[str, Any]:
    """The answer of contract section 4; `publics` are the keys that the log's notes are signed
    by: without one a log that was purged can't be believed. `ReadFault` where the database does not
    answer."""
    standing = await _standing(store, tenant_id)
    tries = TRIES
    while True:
        answer = await _verify(store, tenant_id, standing, publics)
        before, standing, tries = standing, await _standing(store, tenant_id), tries - 1
        if answer["valid"] or standing.anchor == before.anchor or not tries:
            return answer


async def _standing(store: Store, tenant_id: str) -> LogSnapshot:
    async with store.reading(tenant_id) as connection:
        # In this order: what is appended in between lies below the head that is read last, and a
        # purge in between is in the log before it is in the anchor that was read.
        beyond = await _last(connection, tenant_id)
        anchor = odd = None
        try:
            anchor = await latest_anchor(connection, tenant_id)
            odd = await below(connection, tenant_id, anchor)
        except (ValueError, TypeError):
            odd = ("0", "the anchor can't be read")
        row = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
    return LogSnapshot(beyond, anchor, odd, row)


async def _verify(
    store: Store, tenant_id: str, standing: LogSnapshot, publics: Collection[bytes]
) -> dict[str, Any]:
    anchor, row = standing.anchor, standing.head
    log = "" if row is None else row.log
    head, fault = _head(row, standing.beyond)
    watch = AnchorWatch(anchor, log, publics)
    fault = fault or watch.fault or standing.odd
    verifier = proof.Verifier(log)
    if head is not None and fault is None:
        verifier = watch.verifier()
        part = LogRange(watch.first, head.size, head.size)
        fault = await scan(store, tenant_id, verifier, part, watch.seen)
    report = verifier.finish(head if fault is None else None)
    if report.valid and fault is None and head is not None:
        fault = watch.missed(head.size)
        if fault is None and standing.beyond >= head.size:
            at = standing.beyond
            fault = (str(at), f"seq {at}: is there, and the head counts {head.size} entries")
    return _answer(report, fault, watch, store.clock.now())


async def _last(connection: AsyncConnection, tenant_id: str) -> int:
    """The last seq of which there is a row, an entry's or an opening's; -1 without any."""
    last = -1
    for table in (log_entries, openings):
        query = select(func.max(table.c.seq)).where(table.c.tenant_id == tenant_id)
        found = (await connection.execute(query)).scalar()
        last = max(last, -1 if found is None else int(found))
    return last


def _head(row: Row[Any] | None, last: int) -> tuple[proof.LogHead | None, Fault | None]:
    if row is None:
        # A log begins with its first entry.
        return None, None if last < 0 else ("0", "the log has entries and no head")
    try:
        head = proof.LogHead(index(row.size), row.last_leaf, _time(row.last_ts), row.frontier)
    except (TypeError, ValueError, OverflowError):
        return None, ("0", "the head can't be read")
    return head, None


def _time(last_ts: int) -> str:
    return rfc3339(last_ts) if last_ts else ""


def _answer(
    report: proof.VerificationReport, fault: Fault | None, watch: AnchorWatch, now: int
) -> dict[str, Any]:
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
        "anchor": watch.shown(),
        "checkpoint": watch.checkpoint(),
        "checked_at": rfc3339(now),
    }


_HEAD = select(log_heads).where(log_heads.c.tenant_id == bindparam("tenant"))
