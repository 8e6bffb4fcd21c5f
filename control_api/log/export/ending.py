"""Writes the lines behind an export's last entry: its proof, the checkpoints and keys that it
cites, and the `purge` entry that explains why earlier entries are missing.

An erasure's `redact` entry may lie behind the end of a part, or of an export that was running.
Without it a reader could not tell an erasure from openings that were removed silently, so the file
brings it along, with its own proof. In the same way, only the `purge` entry distinguishes retention
from rows that were deleted. After an incarnation the log's checkpoints have another origin.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Row, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log import checks
from control_api.log.export.place import entry_proof
from control_api.store.queries import log_keys, redactions
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import checkpoints, incarnations
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.errors import Conflict, Unavailable
from policies.ground.signing import Endorsement, KeyRing
from policies.trail.log_file.lines import (
    CheckpointLine,
    ErasureLine,
    HeaderLine,
    Line,
    ProofLine,
    PurgeLine,
)
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.record import MAX_ENTRY
from policies.trail.removal import Anchor
from policies.trail.walk.gaps import erased_ranges


class PurgeEntry(NamedTuple):
    """A `purge` entry: its number in the log, and its bytes as text."""

    seq: int
    text: str


async def shown_purge(
    connection: AsyncConnection,
    tenant_id: str,
    log: str,
    anchor: Anchor,
    publics: Collection[bytes],
) -> PurgeEntry:
    """Return the anchor's `purge` entry. Raises `Conflict` if the log does not show that retention
    removed the entries before its oldest one, and `Unavailable` if no checkpoint covers the purge
    yet. `publics` are the keys trusted to sign the log."""
    kept, fault = anchor.purged.size, anchor.fault(log, publics)
    raw = await checks.purge_entry(connection, tenant_id, anchor)
    if fault is not None or raw is None:
        why = fault or f"entry {anchor.seq} is not the `purge` entry that says so"
        raise Conflict(
            f"the entries before {kept} are gone as if retention had removed them, but {why}: "
            "nothing is exported, since no such file verifies; examine the database with "
            "`sluice verify --database`, and restore it from a backup"
        )
    if anchor.cover_note is None:
        raise Unavailable(
            f"retention is removing the entries before {kept}, and no checkpoint covers that yet: "
            "try again in a few seconds"
        )
    return PurgeEntry(anchor.seq, raw.decode())


WITHOUT_END = 2**63 - 1


class OriginSpan(NamedTuple):
    """A range of log sizes whose checkpoints have the same origin: the sizes above `above`, up to
    `most` (inclusive)."""

    origin: str
    above: int
    most: int


class StoredCheckpoint(NamedTuple):
    size: int
    note: str


async def origin_spans(connection: AsyncConnection, tenant_id: str, log: str) -> list[OriginSpan]:
    rows = (await connection.execute(_INCARNATIONS, {"tenant": tenant_id})).all()
    origins = [(log, -1), *((row.origin, row.seq) for row in rows)]
    # The `incarnation` entry is the first that the new origin covers.
    ends = [*(seq for _, seq in origins[1:]), WITHOUT_END]
    return [
        OriginSpan(origin, above, most) for (origin, above), most in zip(origins, ends, strict=True)
    ]


def newest(
    connection: Connection, tenant_id: str, span: OriginSpan, above: int, most: int
) -> StoredCheckpoint | None:
    """Return the newest checkpoint in the span of a size above `above` and up to `most`; None if
    there is none."""
    wanted = {"tenant": tenant_id, "origin": span.origin, "above": above, "most": most}
    row = connection.execute(_NEWEST, wanted).one_or_none()
    return None if row is None else StoredCheckpoint(*row)


async def covering(
    connection: AsyncConnection, tenant_id: str, span: OriginSpan, size: int
) -> StoredCheckpoint | None:
    """Return the smallest checkpoint in the span of at least `size` entries; None if there is
    none."""
    wanted = {"tenant": tenant_id, "origin": span.origin, "size": size, "most": span.most}
    row = (await connection.execute(_COVERING, wanted)).one_or_none()
    return None if row is None else StoredCheckpoint(*row)


async def signing_keys(
    connection: AsyncConnection, origin: str, ring: KeyRing
) -> list[dict[str, Any]]:
    """Return the `keys` of an export's header: the log's first key, and those that succeeded it.
    `connection` must be one that sees every tenant's rows."""
    # Another replica may already sign with a successor of this process's key.
    chain = ring.continued(await log_keys.endorsements(connection))
    first = chain[0].former if chain else ring.signer.public
    return _keys(origin, first, chain)


def _keys(origin: str, first: bytes, chain: Sequence[Endorsement]) -> list[dict[str, Any]]:
    keys = [(first, None), *((each.next, each.to_wire()) for each in chain)]
    return [
        {"key": VerifierKey(origin, ED25519, public).text(), "endorsement": endorsement}
        for public, endorsement in keys
    ]


_OF_ORIGIN = (of_tenant(checkpoints), checkpoints.c.origin == bindparam("origin"))
_INCARNATIONS = (
    select(incarnations.c.origin, incarnations.c.seq)
    .where(of_tenant(incarnations))
    .order_by(incarnations.c.number)
)
_NEWEST = (
    select(checkpoints.c.size, checkpoints.c.note)
    .where(
        *_OF_ORIGIN,
        checkpoints.c.size > bindparam("above"),
        checkpoints.c.size <= bindparam("most"),
    )
    .order_by(checkpoints.c.size.desc())
    .limit(1)
)
_COVERING = (
    select(checkpoints.c.size, checkpoints.c.note)
    .where(
        *_OF_ORIGIN,
        checkpoints.c.size >= bindparam("size"),
        checkpoints.c.size <= bindparam("most"),
    )
    .order_by(checkpoints.c.size)
    .limit(1)
)


PAGE = 100
"""Erasures read at a time. Each takes a proof, and an entry of at most 64 KiB."""


class ExportStopped(Exception):
    """the export can't continue; the message says why, and the file says so too"""


@dataclass(frozen=True, slots=True)
class Ending:
    """The lines at the end of one export, written after its last page was read. `purge` is None if
    the file has that entry, or if nothing was purged; `covered` is the size of the file's last
    checkpoint, 0 without one."""

    store: Store
    tenant_id: str
    header: HeaderLine
    spans: list[OriginSpan]
    purge: PurgeEntry | None
    covered: int

    async def lines(self) -> AsyncGenerator[Line, None]:
        """Yield the lines, in order. Raises `ExportStopped` if a purge has removed erasures
        meanwhile, or if an erasure can't be proven."""
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
        """Return the checkpoint in which the file's last entry is proven, None if there is none.
        Usually that is the first one after the entry. It is the newest of all if lines about later
        entries follow, or if the file already has a checkpoint of exactly its own size: otherwise a
        part that ends there would look like a log that lost what followed."""
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
        """Return whether there are erasures behind the file's end that the file must bring
        along."""
        if not self.header.with_openings:
            return False
        return bool(await self._page(connection, self.header.until - 1, 1))

    async def _proof(self, connection: AsyncConnection, seq: int, size: int) -> list[bytes] | None:
        """Return the proof of an entry; None if it can't be made. The file stays valid without it,
        and its verification says what is not proven."""
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
        """Yield the `redact` entries behind the file's end that name an entry before its end, each
        with a proof in the tree of `size` if there can be one. Erasures that name only entries
        before the file's start are included, since the file may continue another one."""
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
