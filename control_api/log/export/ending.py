"""Writes what stands behind an export's last entry: its proof, the `purge` entry of what precedes
the log's oldest entry, and the erasures after the file.

An erasure deletes openings at once, and its `redact` entry comes last in the log: behind the end of
a part, or of an export that was running. Without that entry a reader could not tell an erasure from
openings that were removed silently, so the file brings it along, with its own proof. In the same
way, only the `purge` entry tells retention from rows that were deleted.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.export.oldest import PurgeEntry
from control_api.log.export.place import entry_proof
from control_api.log.export.signatures import OriginSpan, StoredCheckpoint, covering, newest
from control_api.store.queries import redactions
from control_api.store.queries.purges import first_kept
from control_api.store.store import Store
from policies.ground.errors import Conflict, Unavailable
from policies.trail.log_file.lines import (
    CheckpointLine,
    ErasureLine,
    HeaderLine,
    Line,
    ProofLine,
    PurgeLine,
)
from policies.trail.record import MAX_ENTRY
from policies.trail.walk.erasures import erased_ranges

PAGE = 100
"""Erasures read at a time: each takes a proof, and an entry of at most 64 KiB."""


class ExportStopped(Exception):
    """the export can't continue; the message says why, and the file says so too"""


@dataclass(frozen=True, slots=True)
class Ending:
    """The ending of one export, written once its last page was read. `purge` is None if the file
    has that entry, or if nothing was purged; `covered` is the size of its last checkpoint, 0
    without one."""

    store: Store
    tenant_id: str
    header: HeaderLine
    spans: list[OriginSpan]
    purge: PurgeEntry | None
    covered: int

    async def lines(self) -> AsyncGenerator[Line, None]:
        """The lines, in order. Raises `ExportStopped` if a purge has removed erasures meanwhile, or
        if one can't be proven."""
        if self.header.until == self.header.first:
            return
        # Proofs are read in snapshots: a purge between two of the reads would leave a gap in them.
        async with self.store.snapshot(self.tenant_id) as connection:
            checkpoint = await self._checkpoint(connection)
            proof = None
            if checkpoint is not None:
                proof = await self._proof(connection, self.header.until - 1, checkpoint.size)
        if checkpoint is not None and proof is not None:
            yield ProofLine(proof)
            yield CheckpointLine(checkpoint.note)
        if self.purge is not None:
            size = self.covered if checkpoint is None or proof is None else checkpoint.size
            yield await self._purge_line(self.purge, size)
        if self.header.with_openings:
            # A file without the proof of its last entry has no tree for those behind it either.
            size = 0 if checkpoint is None or proof is None else checkpoint.size
            async for line in self._erasures(size):
                yield line

    async def _checkpoint(self, connection: AsyncConnection) -> StoredCheckpoint | None:
        """The checkpoint that the file's last entry is proven in: the first one after it. For what
        lies behind it, and if one of just its size was written already, the newest of all: a part
        that seems to end with the log would seem to be a log that lost what followed."""
        until = self.header.until
        span = next(each for each in self.spans if each.above < until <= each.most)
        first = await covering(connection, self.tenant_id, span, until)
        own = first is not None and first.size == until
        purged = self.purge is not None and self.purge.seq >= until
        if own or purged or await self._is_erased(connection):
            last = self.spans[-1]
            above = max(until, last.above)
            found = await connection.run_sync(newest, self.tenant_id, last, above, last.most)
            if found is not None:
                return found
        return None if own else first

    async def _is_erased(self, connection: AsyncConnection) -> bool:
        """Whether erasures lie behind the file that it must bring along."""
        if not self.header.with_openings:
            return False
        return bool(await self._page(connection, self.header.until - 1, 1))

    async def _proof(self, connection: AsyncConnection, seq: int, size: int) -> list[bytes] | None:
        """The proof of an entry; None if it can't be made. The file stays valid, and its
        verification says what is not proven."""
        try:
            return await entry_proof(connection, self.tenant_id, seq, size)
        except (Conflict, Unavailable):
            return None

    async def _purge_line(self, purge: PurgeEntry, size: int) -> PurgeLine:
        if purge.seq >= size:
            return PurgeLine(purge.text, None)
        async with self.store.snapshot(self.tenant_id) as connection:
            proof = await self._proof(connection, purge.seq, size)
        if proof is None:
            raise ExportStopped(
                f"the `purge` entry {purge.seq} can't be proven, since nodes of the log's tree are "
                "missing: export the whole log, or try again once the scheduled verification has "
                "made them, within hours"
            )
        return PurgeLine(purge.text, proof)

    async def _erasures(self, size: int) -> AsyncGenerator[ErasureLine, None]:
        """The `redact` entries behind the file that name an entry before its end, proven in the
        tree of `size` as far as that goes. Those that name only entries before the file are among
        them: it may be the continuation of another."""
        after = self.header.until - 1
        while True:
            async with self.store.snapshot(self.tenant_id) as connection:
                rows = await self._page(connection, after, PAGE)
                lines = [await self._line(connection, row, size) for row in rows]
                kept = (await connection.execute(select(first_kept(self.tenant_id)))).scalar_one()
            if kept > self.header.until:
                raise ExportStopped(
                    f"retention removed the erasures from seq {self.header.until} to {kept - 1} "
                    "before they were exported: export again"
                )
            for line in lines:
                if line is not None:
                    yield line
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    async def _line(
        self, connection: AsyncConnection, row: Row[Any], size: int
    ) -> ErasureLine | None:
        try:
            text = row.entry.decode()
            ranges = erased_ranges(orjson.loads(text))
        except (ValueError, TypeError, LookupError, AttributeError):
            return None  # damaged: it excuses nothing
        if len(row.entry) > MAX_ENTRY or all(first >= self.header.until for first, _ in ranges):
            return None
        proof = await self._proof(connection, row.seq, size) if row.seq < size else None
        return ErasureLine(text, proof)

    async def _page(self, connection: AsyncConnection, after: int, limit: int) -> list[Row[Any]]:
        return await redactions.page(
            connection, self.tenant_id, before=None, after=after, limit=limit
        )
