"""What a verification holds against the anchor of a purged log: the rows that are left below it,
the notes that were signed, the `purge` entry, and the tree at each signed size.

Retention is the one way in which a log loses entries. So whoever takes its oldest rows away must
show a note that only the log's key signs, and a `purge` entry that says the same.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.index_check import Fault
from control_api.store.schema.tables import log_entries, openings
from policies.ground.canonical import rfc3339
from policies.trail.checkpoint import Checkpoint
from policies.trail.purge import KIND, Anchor
from policies.trail.verify import Verifier


async def below(connection: AsyncConnection, tenant_id: str, anchor: Anchor | None) -> Fault | None:
    """What is wrong with the rows below the anchor: before a checkpoint covers the purge all must
    be there, and once it has finished, none. In between they go, and nobody sees them any more."""
    if anchor is None or (anchor.cover_note is not None and anchor.finished_at is None):
        return None
    purged = anchor.purged
    for table in (log_entries, openings):
        query = select(func.min(table.c.seq)).where(
            table.c.tenant_id == tenant_id, table.c.seq < purged.size
        )
        first = (await connection.execute(query)).scalar()
        if anchor.finished_at is not None and first is not None:
            return (str(first), f"seq {first}: was purged, and is there")
        if anchor.finished_at is None and table is log_entries:
            due = purged.size - purged.count
            if first != due:
                return (str(due), f"seq {due}: went before a checkpoint covered its purge")
    return None


class AnchorWatch:
    """The anchor of one walk, None where nothing was purged."""

    def __init__(self, anchor: Anchor | None, log: str, publics: Collection[bytes]) -> None:
        self._anchor = anchor
        self._log = log
        self._met = False
        self._cover: Checkpoint | None = None
        self.first = 0
        self.fault: Fault | None = None
        if anchor is None:
            return
        fault = anchor.fault(log, publics)
        if fault is not None:
            self.fault = (str(anchor.seq), fault)
            return
        self.first = anchor.purged.size
        if anchor.cover_note is not None:
            self._cover = anchor.cover(log, publics)

    def verifier(self) -> Verifier:
        """One that begins behind the purge, and looks out for the checkpoint that covers it."""
        if self._anchor is None:
            return Verifier(self._log)
        verifier = Verifier(self._log, after=self._anchor.purged)
        if self._cover is not None:
            verifier.expect(self._cover.size, self._cover.root)
        return verifier

    def seen(self, rows: Sequence[Row[Any]]) -> Fault | None:
        """A `purge` entry after the anchor's: then the anchor is not the last."""
        for row in rows:
            if row.kind == KIND:
                if self._anchor is None or row.seq > self._anchor.seq:
                    return (row.eid, f"seq {row.seq}: a purge that the anchor does not tell of")
                if row.seq == self._anchor.seq and self._anchor.matches_entry(row.entry):
                    self._met = True
        return None

    def missed(self, size: int) -> Fault | None:
        """What a walk to the end of a log of `size` should have met and has not."""
        if self._anchor is None:
            return None
        if not self._met:
            at = self._anchor.seq
            return (str(at), f"seq {at}: is not the `purge` entry that the anchor stands for")
        if self._cover is not None and self._cover.size > size:
            return (str(size), f"a checkpoint counts {self._cover.size} entries, the log {size}")
        return None

    def shown(self) -> dict[str, Any] | None:
        """As contract section 4 shows an anchor; None too where it can't be believed."""
        return None if self._anchor is None or self.fault else shown(self._anchor)

    def checkpoint(self) -> dict[str, Any] | None:
        """The newest signed note."""
        if self._anchor is None or self.fault:
            return None
        at = self._cover or self._anchor.purged.checkpoint(self._log)
        note = self._anchor.cover_note or self._anchor.anchor_note
        return {"size": at.size, "root_hash": at.root.hex(), "note": note}


def shown(anchor: Anchor) -> dict[str, Any]:
    """As contract section 4 shows it."""
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
