"""Verifies a tenant's log, from its beginning or the anchor of its last purge up to the head as of
the start. Checks every entry against its hash, its columns, its openings and the head.

A purge may begin meanwhile and remove entries that are still to be read: the verification then
restarts after the purged entries.
"""

from collections.abc import Callable, Collection, Sequence
from operator import index
from typing import Any, NamedTuple

from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.checks import AnchorCheck, counters, find_ahead, latest_answer, read_anchor
from control_api.log.scan import LogRange, excuse_redacted, missing_openings, scan
from control_api.store.schema.log import log_entries, log_heads, openings
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.trail import verify as proof
from policies.trail.checkpoint import Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.removal import Anchor
from policies.trail.walk.gaps import Silences

MAX_TRIES_DURING_PURGES = 5
"""The number of times that a log is verified if a purge interferes. Purges run hourly; a
verification that meets one in every try reports its last result."""


class LogSnapshot(NamedTuple):
    """The state of a log at the start of a verification. `last_row` is the highest seq with a row;
    `anchor_fault` is a fault of the anchor or of the rows below it. `purge_fault` is a fault of the
    anchor's `purge` entry, reported only if all entries verify. `counters` are those of the
    spools."""

    last_row: int
    anchor: Anchor | None
    anchor_fault: Finding | None
    purge_fault: Finding | None
    head: Row[Any] | None
    counters: Sequence[Row[Any]]


class SignedHistory(NamedTuple):
    """The signatures of the log from before this verification: the checkpoints `before` that its
    tree must pass through; the `finding`, if the log already contradicts them; and the latest
    note."""

    before: tuple[Checkpoint, ...] = ()
    finding: Finding | None = None
    note: str | None = None


UNSIGNED = SignedHistory()


async def verify(
    store: Store,
    tenant_id: str,
    publics: Collection[bytes] = (),
    signed: SignedHistory = UNSIGNED,
    silences: Callable[[Silences], None] | None = None,
) -> dict[str, Any]:
    """Verify the log, and return the answer that `CONTRACT.md` describes (Verification and
    retention). `publics` are the keys trusted to sign the log's notes: without any, a purged log
    can't verify. `silences` is called with the log's silences, which the answer has no place for.
    Raises `ReadFault` if the database does not answer."""
    snapshot = await _snapshot(store, tenant_id)
    tries_left = MAX_TRIES_DURING_PURGES
    while True:
        answer, found = await _verify(store, tenant_id, snapshot, publics, signed)
        before, snapshot, tries_left = snapshot, await _snapshot(store, tenant_id), tries_left - 1
        # A fault while the anchor moved proves nothing: a purge removed entries during the scan.
        if answer["valid"] or snapshot.anchor == before.anchor or not tries_left:
            if silences is not None:
                silences(found)
            return answer


async def _snapshot(store: Store, tenant_id: str) -> LogSnapshot:
    async with store.reading(tenant_id) as connection:
        # The order matters. Entries that are appended between these reads are below the head, which
        # is read last. If a purge runs between them, the log has its entry, but the anchor read
        # here is the old one, and `verify` retries.
        last_row = await _last_row(connection, tenant_id)
        anchor, fault, other = await read_anchor(connection, tenant_id)
        spools = await counters(connection, tenant_id)
        head = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
    return LogSnapshot(last_row, anchor, fault, other, head, spools)


async def _verify(
    store: Store,
    tenant_id: str,
    snapshot: LogSnapshot,
    publics: Collection[bytes],
    signed: SignedHistory,
) -> tuple[dict[str, Any], Silences]:
    log = "" if snapshot.head is None else snapshot.head.log
    head, fault = _parse_head(snapshot.head, snapshot.last_row)
    check = AnchorCheck(snapshot.anchor, log, publics)
    fault = fault or check.fault or snapshot.anchor_fault
    verifier = proof.Verifier(log)
    if head is not None and fault is None:
        verifier = check.verifier(signed.before)
        part = LogRange(check.first, head.size, head.size)
        fault = await scan(store, tenant_id, verifier, part, check.check_rows)
        await excuse_redacted(store, tenant_id, verifier.erasures, head.size)
        broken = fault or verifier.reached()[2]
        fault = broken or await missing_openings(store, tenant_id, verifier.erasures)
    report = verifier.finish(head if fault is None else None)
    if report.valid and fault is None and head is not None:
        ends, purged = verifier.source_ends, snapshot.anchor is not None
        fault = snapshot.purge_fault or check.check_end(head.size)
        fault = fault or find_ahead(snapshot.counters, ends, head.size, purged=purged)
        if fault is None and snapshot.last_row >= head.size:
            at = snapshot.last_row
            beyond = f"seq {at}: exists, but the head counts only {head.size} entries"
            fault = Finding(at, Reason.HEAD_MISMATCH, beyond)
    # What an entry shows comes first: it says where the log was changed.
    found = fault or report.finding or signed.finding
    answer = _answer(report, found, check, store.clock.now())
    latest = None if signed.note is None else latest_answer(signed.note)
    answer = answer if latest is None else {**answer, "checkpoint": latest}
    return answer, verifier.silences


async def _last_row(connection: AsyncConnection, tenant_id: str) -> int:
    """Return the highest seq with a row, of an entry or an opening; -1 for an empty log."""
    last = -1
    for table in (log_entries, openings):
        query = select(func.max(table.c.seq)).where(of_tenant(table, tenant_id))
        found = (await connection.execute(query)).scalar()
        last = max(last, -1 if found is None else int(found))
    return last


def _parse_head(row: Row[Any] | None, last_row: int) -> tuple[proof.LogHead | None, Finding | None]:
    if row is None:
        # A log without entries has no head yet.
        headless = Finding(0, Reason.HEAD_MISMATCH, "the log has entries and no head")
        return None, None if last_row < 0 else headless
    try:
        last_ts = rfc3339(row.last_ts) if row.last_ts else ""
        return proof.LogHead(index(row.size), row.last_leaf, last_ts, row.frontier), None
    except (TypeError, ValueError, OverflowError):
        return None, Finding(0, Reason.HEAD_MISMATCH, "the head can't be read")


def _answer(
    report: proof.VerificationReport, found: Finding | None, check: AnchorCheck, now: int
) -> dict[str, Any]:
    return {
        "valid": found is None,
        "total": report.total,
        "events": report.events,
        "first_seq": report.first_seq,
        "last_seq": report.last_seq,
        "head_hash": report.head_hash,
        "broken_at": None if found is None else found.place,
        "reason": None if found is None else found.text(),
        **check.answers(),
        "checked_at": rfc3339(now),
    }


_HEAD = select(log_heads).where(of_tenant(log_heads))
