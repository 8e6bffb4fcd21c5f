"""Reads a range of a tenant's log, page by page, and checks each entry against its hash, its
columns and its openings. Used by verifications and before a purge.

An opening may have been erased after its range was recorded, even while the log is being read.
Therefore the `redact` entry that explains a missing opening may lie behind the range, and is looked
up there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Row, Select, bindparam, select

from control_api.log.checks import SpanCheck, find_unindexed
from control_api.store.log.chain import NO_OPENINGS, user_id_of
from control_api.store.queries import redactions
from control_api.store.schema.log import entries_with_openings, log_entries, openings
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.trail import entry as stored
from policies.trail import verify as proof
from policies.trail.entry import Index
from policies.trail.findings import Finding, Reason
from policies.trail.walk.gaps import Erasures, erased_ranges

REDACTIONS_PAGE = 100


async def excuse_redacted(store: Store, tenant_id: str, erasures: Erasures, size: int) -> None:
    """Excuse the missing openings that the `redact` entries from seq `size` on name. Those entries
    are not verified here, but when a verification reaches them."""
    after = size - 1
    while erasures.count():
        async with store.reading(tenant_id) as connection:
            rows = await redactions.page(
                connection, tenant_id, before=None, after=after, limit=REDACTIONS_PAGE
            )
        for row in rows:
            after = row.seq
            for first, last in _ranges(row.entry):
                erasures.redact(first, last)
        if len(rows) < REDACTIONS_PAGE:
            return


async def missing_openings(store: Store, tenant_id: str, erasures: Erasures) -> Finding | None:
    """Return a finding for the first entry whose opening is missing without a `redact` entry that
    names it; None if there is none."""
    for found in erasures.findings(1):
        query = select(log_entries.c.eid).where(
            of_tenant(log_entries, tenant_id), log_entries.c.seq == found.seq
        )
        async with store.reading(tenant_id) as connection:
            return found._replace(eid=(await connection.execute(query)).scalar_one_or_none())
    return None


def _ranges(raw: bytes) -> list[tuple[int, int]]:
    try:
        return erased_ranges(orjson.loads(raw))
    except (ValueError, TypeError, LookupError, AttributeError):
        return []  # not an entry at all: it excuses nothing


PAGE_BYTES = 4 * 1024 * 1024
"""The target size of a page in bytes, so that memory stays flat, however large entries are."""
# The first page is small, because the size of the log's entries is not known yet.
FIRST_ROWS, MAX_ROWS = 64, 2000
BEFORE_ALL = -(2**63)
STRETCH = 50
"""Rows checked between two turns of the event loop, in about a millisecond."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """A range to scan: the entries from `first` up to `until` (exclusive) of a log of `size`.

    If `first` is 0, rows with a negative seq are scanned too: there must not be any. `pause` is the
    time in seconds that other tasks get after each `stretch` of rows, or `rest` times the CPU time
    that the stretch took, if that is longer; `max_rows` bounds a page.
    """

    first: int
    until: int
    size: int
    pause: float = 0.0
    max_rows: int = MAX_ROWS
    stretch: int = STRETCH
    rest: float = 0.0


async def scan(
    store: Store,
    tenant_id: str,
    verifier: proof.Verifier,
    part: LogRange,
    check_rows: Callable[[Sequence[Row[Any]]], Finding | None] | None = None,
    follow: Callable[[Sequence[Row[Any]]], Awaitable[None]] | None = None,
) -> Finding | None:
    """Feed every entry of the range to the verifier, and return any fault that the verifier does
    not report itself. `check_rows` makes further checks on the rows that the verifier accepted;
    `follow` is called with those that passed these too, in order."""
    after = part.first - 1 if part.first else BEFORE_ALL
    limit, spans = FIRST_ROWS, SpanCheck(part.first, part.until, part.size)
    while True:
        # A transaction for each page: a long-lived reader would keep SQLite from checkpointing its
        # WAL.
        async with store.reading(tenant_id) as connection:
            page = {"tenant": tenant_id, "until": part.until, "after": after, "rows": limit}
            rows = (await connection.execute(_PAGE, page)).all()
            if not rows:
                return await spans.fault(connection, tenant_id)
            first, last = rows[0].seq, rows[-1].seq
            unindexed = await find_unindexed(connection, tenant_id, first, last + 1, part.size)
        for at in range(0, len(rows), part.stretch):
            stretch, began = rows[at : at + part.stretch], time.thread_time()
            wrong = next((n for n, row in enumerate(stretch) if not _user_id_matches(row)), None)
            # In order of `seq`: a fault that the verifier finds before this one is reported first.
            if not verifier.feed_all(map(_row, stretch[:wrong])):
                return None
            if wrong is not None:
                row = stretch[wrong]
                wrong_user = f"seq {row.seq}: the column `user_id` is not what was opened"
                return Finding(row.seq, Reason.COLUMN_MISMATCH, wrong_user, row.eid)
            if check_rows is not None and (fault := check_rows(stretch)):
                return fault
            if follow is not None:
                await follow(stretch)
            await asyncio.sleep(max(part.pause, part.rest * (time.thread_time() - began)))
        if unindexed:
            return unindexed
        spans.feed(rows)
        # The next page gets as many rows as would have filled this one.
        weight = sum(len(row.entry) + len(row.openings or NO_OPENINGS) for row in rows)
        after, limit = last, max(1, min(PAGE_BYTES * len(rows) // weight, part.max_rows))


def _user_id_matches(row: Row[Any]) -> bool:
    """Return whether the column `user_id` matches the openings: it is the only column that an entry
    does not contain. Malformed openings count as a match, since the verifier reports them."""
    try:
        return bool(row.user_id == user_id_of(row.openings or NO_OPENINGS))
    except (ValueError, TypeError, LookupError, AttributeError):
        return True


def _row(row: Any) -> stored.StoredRow:
    return stored.StoredRow(row[0], row[1], row[2], Index(*row[3:-2]), row[-1] or NO_OPENINGS)


_PAGE: Select[Any] = (
    select(
        log_entries.c.seq,
        log_entries.c.entry,
        log_entries.c.hash,
        *(log_entries.c[name] for name in Index._fields),
        openings.c.user_id,
        openings.c.openings,
    )
    .select_from(entries_with_openings)
    .where(
        of_tenant(log_entries),
        log_entries.c.seq > bindparam("after"),
        log_entries.c.seq < bindparam("until"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
