"""A stretch of a tenant's log read back, page by page, and each entry held against itself, its
columns and its openings. Used by whoever verifies, and by whoever is about to remove.

Knows SQL and pages; what makes an entry right is known to `policies.trail.verify`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, select

from control_api.log.index_check import Fault, Spans, unindexed
from control_api.store.log.chain import NO_OPENINGS, user_id_of
from control_api.store.schema.tables import log_entries, openings
from control_api.store.store import Store
from policies.trail import stored_entry as stored
from policies.trail import verify as proof
from policies.trail.entry import Index

PAGE_BYTES = 4 * 1024 * 1024
"""What a page should weigh: memory stays flat, whatever an entry weighs."""
FIRST_ROWS, MOST_ROWS = 64, 2000
BEFORE_ALL = -(2**63)
STRETCH = 50
"""Rows between two turns of the event loop: about a millisecond."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Entries from `first` to before `until`, of a log of `size`. Whatever stands before `first`
    is walked too where that is 0: there is nothing that may. `pause`: seconds that others get after
    each stretch; `most`: rows of a page."""

    first: int
    until: int
    size: int
    pause: float = 0.0
    most: int = MOST_ROWS


async def scan(
    store: Store,
    tenant_id: str,
    verifier: proof.Verifier,
    part: LogRange,
    seen: Callable[[Sequence[Row[Any]]], Fault | None] | None = None,
) -> Fault | None:
    """Feed every entry of the part; a fault that the verifier does not know of. `seen` judges rows
    that the verifier found right. Each page is a read of its own: a reader that stayed would keep
    SQLite from folding its WAL into the file."""
    after = part.first - 1 if part.first else BEFORE_ALL
    most, spans = FIRST_ROWS, Spans(part.first, part.until, part.size)
    while True:
        async with store.reading(tenant_id) as connection:
            page = {"tenant": tenant_id, "until": part.until, "after": after, "rows": most}
            rows = (await connection.execute(_PAGE, page)).all()
            if not rows:
                return await spans.fault(connection, tenant_id)
            first, last = rows[0].seq, rows[-1].seq
            hidden = await unindexed(connection, tenant_id, first, last + 1, part.size)
        for at in range(0, len(rows), STRETCH):
            stretch = rows[at : at + STRETCH]
            good = next((n for n, row in enumerate(stretch) if not _names_its_user(row)), None)
            if not verifier.feed_all(map(_row, stretch[:good])):
                return None
            if good is not None:
                row = stretch[good]
                return (row.eid, f"seq {row.seq}: the column `user_id` is not what was opened")
            if seen is not None and (fault := seen(stretch)):
                return fault
            await asyncio.sleep(part.pause)
        if hidden:
            return hidden
        spans.feed(rows)
        weight = sum(len(row.entry) + len(row.openings or NO_OPENINGS) for row in rows)
        after, most = last, max(1, min(PAGE_BYTES * len(rows) // weight, part.most))


def _names_its_user(row: Row[Any]) -> bool:
    """The one column of which the entry knows nothing. Openings that can't be read are the
    verifier's to find."""
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
    .outerjoin(
        openings,
        and_(openings.c.tenant_id == log_entries.c.tenant_id, openings.c.seq == log_entries.c.seq),
    )
    .where(
        log_entries.c.tenant_id == bindparam("tenant"),
        log_entries.c.seq > bindparam("after"),
        log_entries.c.seq < bindparam("until"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
