"""Checks the anchor of a purged log: the rows left below it, the signed notes, the `purge` entry,
and the tree at each signed size.

Retention is the only way in which a log may lose entries. So the removal of its oldest rows needs a
note that only the log's key can sign, and a `purge` entry that says the same.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import log_entries, openings
from policies.ground.canonical import rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.purge import KIND, Anchor
from policies.trail.verify import Verifier


async def check_purged_rows(
    connection: AsyncConnection, tenant_id: str, anchor: Anchor | None
) -> Finding | None:
    """Checks the rows below the anchor: all must exist until a checkpoint covers the purge, and
    none once it has finished. In between they are being removed, and no reader sees them."""
    if anchor is None or (anchor.cover_note is not None and anchor.finished_at is None):
        return None
    purged = anchor.purged
    # Openings may be missing at any time, because erasing a person deletes theirs. So before a
    # purge is covered, only its entries must be there.
    for table in (log_entries, openings):
        query = select(func.min(table.c.seq)).where(
            table.c.tenant_id == tenant_id, table.c.seq < purged.size
        )
        first = (await connection.execute(query)).scalar()
        if anchor.finished_at is not None and first is not None:
            there = f"seq {first}: was purged, but exists"
            return Finding(first, Reason.PURGED_ROW_EXISTS, there)
        if anchor.finished_at is None and table is log_entries:
            due = purged.size - purged.count
            if first != due:
                removed = f"seq {due}: removed before a checkpoint covered its purge"
                return Finding(due, Reason.PURGE_UNCOVERED, removed)
    return None


async def check_purge_entry(
    connection: AsyncConnection, tenant_id: str, anchor: Anchor | None
) -> Finding | None:
    """Checks that the entry which the anchor names is its `purge` entry: only that tells what
    retention removed from rows that were deleted. The walk verifies the entry itself."""
    if anchor is None or await purge_entry(connection, tenant_id, anchor) is not None:
        return None
    other = f"seq {anchor.seq}: is not the `purge` entry of the anchor"
    return Finding(anchor.seq, Reason.PURGE_MISMATCH, other)


async def purge_entry(connection: AsyncConnection, tenant_id: str, anchor: Anchor) -> bytes | None:
    """The bytes of the anchor's `purge` entry; None if another entry is there, or none."""
    query = select(log_entries.c.entry).where(
        log_entries.c.tenant_id == tenant_id, log_entries.c.seq == anchor.seq
    )
    raw = (await connection.execute(query)).scalar_one_or_none()
    return raw if isinstance(raw, bytes) and anchor.matches_entry(raw) else None


class AnchorCheck:
    """Checks the anchor in one verification; it is None if nothing was purged. `fault` describes a
    fault of the anchor itself."""

    def __init__(self, anchor: Anchor | None, log: str, publics: Collection[bytes]) -> None:
        self._anchor = anchor
        self._log = log
        self._cover: Checkpoint | None = None
        self.first = 0
        self.fault: Finding | None = None
        if anchor is None:
            return
        fault = anchor.fault(log, publics)
        if fault is not None:
            self.fault = Finding(anchor.seq, Reason.ANCHOR_INVALID, fault)
            return
        self.first = anchor.purged.size
        if anchor.cover_note is not None:
            self._cover = anchor.cover(log, publics)

    def verifier(self, before: Collection[Checkpoint] = ()) -> Verifier:
        """A verifier that starts after the purged entries and expects the checkpoint that covers
        the purge, and those in `before`."""
        after = None if self._anchor is None else self._anchor.purged
        verifier = Verifier(self._log, after=after)
        for each in before if self._cover is None else (self._cover, *before):
            verifier.expect(each.size, each.root)
        return verifier

    def check_rows(self, rows: Sequence[Row[Any]]) -> Finding | None:
        """A `purge` entry after the anchor's is a fault, because the anchor must be the latest."""
        for row in rows:
            if row.kind == KIND and (self._anchor is None or row.seq > self._anchor.seq):
                unknown = f"seq {row.seq}: a purge that the anchor does not include"
                return Finding(row.seq, Reason.PURGE_MISMATCH, unknown, row.eid)
        return None

    def check_end(self, size: int) -> Finding | None:
        """The fault if the log, of `size` entries, does not reach what the anchor says."""
        # A signed size can't be taken back, so entries were removed from the end of the log.
        if self._cover is not None and self._cover.size > size:
            fault = f"a signed checkpoint counts {self._cover.size} entries, the log only {size}"
            return Finding(size, Reason.LOG_BEHIND_CHECKPOINT, fault)
        return None

    def anchor_answer(self) -> dict[str, Any] | None:
        """The anchor as in contract section 4, or None if it is missing or faulty."""
        return None if self._anchor is None or self.fault else anchor_answer(self._anchor)

    def checkpoint_answer(self) -> dict[str, Any] | None:
        """The newest signed note as in contract section 4, or None without a valid anchor."""
        if self._anchor is None or self.fault:
            return None
        return latest_answer(self._anchor.cover_note or self._anchor.anchor_note)


def latest_answer(note: str) -> dict[str, Any] | None:
    """A note as in contract section 4, or None if it can't be read."""
    try:
        at = checkpoint.unverified(note)
    except BadNote:
        return None
    return {"size": at.size, "root_hash": at.root.hex(), "note": note}


def anchor_answer(anchor: Anchor) -> dict[str, Any]:
    """The anchor as in contract section 4."""
    purged = anchor.purged
    return {
        "last_seq": purged.size - 1,
        "last_hash": purged.last_leaf.hex(),
        "tree_size": purged.size,
        "root_hash": purged.root.hex(),
        "purged_count": purged.count,
        "purged_before": rfc3339(purged.cutoff),
        "purged_at": rfc3339(anchor.purged_at),
    }
