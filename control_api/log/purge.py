"""Purges one tenant's log: removes a prefix in such a way that the rest still verifies, and then
the documents that no entry can cite any more.

    prove      verify the entries that are old enough (`purge_plan`)
    agree      they are the beginning of a checkpoint that the checkpoint store has
    commit     a signed note of their size, the `purge` entry and the anchor, in one transaction
    cover      a checkpoint, put into the checkpoint store too, that includes the `purge` entry
    remove     the rows, a few at a time

A crash at any point leaves a log that verifies, and a purge that the next run continues. Two
replicas that run at once make a single purge.

A document is removed once all of these rules hold:

    it is no longer in force
    the oldest entry that is kept was recorded more than `LATE_DELIVERY` after it was replaced
    no kept entry that was decided less than `LATE_DELIVERY` after it was replaced cites it

A sidecar that was cut off delivers late, so an entry may cite a document that was replaced long
before the entry was recorded. The third rule finds the entries that have arrived. The second is for
those that have not: if a sidecar delivers more than `LATE_DELIVERY` after the log's retention, its
decisions stay valid, but can't be derived again.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import orjson
from sqlalchemy import Connection, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.proofs import BrokenTree, prove_growth
from control_api.log.purge_plan import DuePurge, PurgeMismatch, before_held, cutoff_of, prove
from control_api.store import cited_documents
from control_api.store.cited_documents import ReplacedDocument
from control_api.store.counters.counters import DAY, drop_expired
from control_api.store.log.index import SPAN, indexed_size
from control_api.store.queries import log_keys, purges
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.queries.purges import RemovalStep, RowsGone, first_kept
from control_api.store.queries.redactions import log_size
from control_api.store.schema.log import log_entries, log_heads, log_spans
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.canonical import micros
from policies.ground.signing import KeyRing
from policies.trail import checkpoint
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.removal import Anchor, Purged

LATE_DELIVERY = 30 * DAY
"""The longest delay (microseconds) with which a sidecar's records are expected to arrive. It also
covers how long a sidecar may decide by a policy set that it can't refresh, and how far its clock
may be wrong."""
AT_ONCE = 100
"""Documents considered in one run; the next purge continues with others."""
_CITING_ROWS = 500
_CITED = re.compile(rb'"(?:role|sources)":"([0-9a-f]{64})"')


async def forget_documents(store: Store, tenant_id: str) -> int:
    """Remove the documents for which the module's three rules hold; return how many were
    removed."""
    async with store.reading(tenant_id) as connection:
        due = await _due_documents(connection, tenant_id)
        if not due:
            return 0
        cited = await _cited(connection, tenant_id, due[-1].replaced_at + LATE_DELIVERY)
    free, last = [each.digest for each in due if each.digest not in cited], due[-1].replaced_at

    async def work(tx: Transaction) -> int:
        # One that was published again meanwhile stays. One that is published from now on waits for
        # this transaction, which holds the tenant's row, and is then kept anew.
        return await cited_documents.forget_cited(tx.connection, tx.tenant_id, free, last + 1)

    return await store.write(tenant_id, work) if free else 0


async def _due_documents(connection: AsyncConnection, tenant_id: str) -> list[ReplacedDocument]:
    oldest = (await connection.execute(_OLDEST, {"tenant": tenant_id})).scalar_one_or_none()
    if oldest is None:
        return []  # an empty log: a sidecar may still deliver its first records
    before = micros(orjson.loads(oldest)["ts"]) - LATE_DELIVERY
    return await cited_documents.replaced_before(connection, tenant_id, before, AT_ONCE)


async def _cited(connection: AsyncConnection, tenant_id: str, until: int) -> set[str]:
    """Return the digests of the documents that kept decisions from before `until` cite."""
    size = await log_size(connection, tenant_id)
    spans = await connection.execute(_SPANS, {"tenant": tenant_id, "time": until})
    # The last entries have no span yet: all of them are looked at.
    ranges = [*((row.seq, row.until_seq) for row in spans), (indexed_size(SPAN, size), size)]
    found: set[str] = set()
    for first, end in ranges:
        wanted = {
            "tenant": tenant_id,
            "first": first,
            "until": end,
            "time": until,
            "rows": _CITING_ROWS,
        }
        while rows := (await connection.execute(_DECIDED, wanted)).all():
            for row in rows:
                found.update(digest.decode() for digest in _CITED.findall(row.entry))
            wanted["first"] = rows[-1].seq + 1
    return found


_OF_TENANT = of_tenant(log_entries)
_OLDEST = (
    select(log_entries.c.entry)
    .where(_OF_TENANT, log_entries.c.seq >= first_kept(log_entries.c.tenant_id))
    .order_by(log_entries.c.seq)
    .limit(1)
)
_SPANS = (
    select(log_spans.c.seq, log_spans.c.until_seq)
    .where(of_tenant(log_spans), log_spans.c.first_ts < bindparam("time"))
    .order_by(log_spans.c.seq)
)
_DECIDED = (
    select(log_entries.c.seq, log_entries.c.entry)
    .where(
        _OF_TENANT,
        log_entries.c.seq >= bindparam("first"),
        log_entries.c.seq < bindparam("until"),
        log_entries.c.kind == "decision",
        log_entries.c.ts < bindparam("time"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)


MIN_STEP, FIRST_STEP, MAX_STEP = 8, 64, 512
"""The minimum, the initial and the maximum number of entries removed in one step. On SQLite
evaluations wait for a step, so it has as many entries as `STEP_SECONDS` allow, and a pause of twice
its duration follows."""
STEP_SECONDS = 0.003


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The outcome of one run: the number of entries it removed, and the log's anchor after it."""

    removed: int
    anchor: Anchor | None


class Checkpoints(Protocol):
    """The interface through which a purge gets the checkpoints that it needs."""

    async def covering(self, tenant_id: str, size: int) -> StoredCheckpoint:
        """Return a checkpoint of at least `size` entries that is in the checkpoint store; sign one
        now if need be. Raises `PurgeMismatch` if the log contradicts an earlier checkpoint, and
        `Unavailable`."""
        ...


class Purge:
    """Purges the logs of one store. `new_id` draws entry ids."""

    def __init__(
        self, store: Store, ring: KeyRing, checkpoints: Checkpoints, new_id: Callable[[], str]
    ) -> None:
        self._store = store
        self._ring = ring
        self._checkpoints = checkpoints
        self._new_id = new_id

    async def run(self, tenant_id: str) -> PurgeResult:
        """Purge one tenant's log as far as its retention and legal holds allow. Raises
        `PurgeMismatch` if the log is not valid, `Unavailable` if the database fails."""
        # Finish an earlier run that died after its commit. It left rows below its anchor, which no
        # reader sees.
        anchor, removed = await self._finish(tenant_id, await self._anchor(tenant_id))
        begun = await self._begin(tenant_id, anchor)
        if begun is not None:
            anchor, more = await self._finish(tenant_id, begun)
            removed += more
        await self._drop_expired_counts(tenant_id)
        await forget_documents(self._store, tenant_id)
        return PurgeResult(removed, anchor)

    async def _anchor(self, tenant_id: str) -> Anchor | None:
        async with self._store.reading(tenant_id) as connection:
            try:
                return await purges.latest_anchor(connection, tenant_id)
            except (ValueError, TypeError) as error:
                raise PurgeMismatch(f"the anchor of tenant `{tenant_id}` can't be read") from error

    async def _begin(self, tenant_id: str, before: Anchor | None) -> Anchor | None:
        """Commit a purge and return its anchor; None if nothing is old enough, or if another
        replica was first."""
        try:
            # `prove` only reads: if we die here, nothing has happened.
            publics = await log_keys.trusted(self._store, self._ring)
            due = await prove(self._store, tenant_id, before, publics)
        except PurgeMismatch:
            if await self._anchor(tenant_id) != before:
                return None  # another replica purged the entries while they were verified
            raise
        return None if due is None else await self._commit(tenant_id, before, due)

    async def _commit(self, tenant_id: str, before: Anchor | None, due: DuePurge) -> Anchor | None:
        purged = due.purged
        note = await self._sign(tenant_id, purged)

        async def work(tx: Transaction) -> Anchor | None:
            # The tenant's row is locked, so concurrent purges and retention changes have committed.
            if await purges.latest_anchor(tx.connection, tenant_id) != before:
                return None
            allowed = await cutoff_of(tx.connection, tenant_id, tx.now)
            if allowed is None or allowed < purged.cutoff:
                return None
            # A hold that was placed since the entries were verified: the next run keeps them.
            first, size = purged.size - purged.count, purged.size
            if await before_held(tx.connection, tenant_id, range(first, size), size) < size:
                return None
            appended = await tx.append(purged.record(self._new_id()))
            anchor = Anchor(appended.seq, purged, appended.ts, note, None, None)
            await purges.add(tx.connection, tenant_id, anchor)
            return anchor

        # If we die before the commit, nothing has happened: the note alone is useless. After the
        # commit no reader sees the prefix, all of its rows still exist, and the next run continues.
        return await self._store.write(tenant_id, work)

    async def _sign(self, tenant_id: str, purged: Purged) -> str:
        """Return a signed note of the prefix to purge. The note is not put into the checkpoint
        store, because that has a checkpoint of a larger tree, which is proven to begin with this
        prefix."""
        covering = await self._checkpoints.covering(tenant_id, purged.size)
        publics = await log_keys.trusted(self._store, self._ring)
        at = checkpoint.read(covering.note, covering.origin, publics)
        try:
            growth = await prove_growth(self._store, tenant_id, purged.size, at.size, publics)
            hashes = growth.hashes
        except BrokenTree as error:
            raise PurgeMismatch(f"log `{at.origin}`: {error}") from error
        if not tree_proofs.proves_consistency(purged.size, purged.root, at.size, at.root, hashes):
            raise PurgeMismatch(
                f"log `{at.origin}`: its first {purged.size} entries are not those of its "
                f"checkpoint of {at.size}"
            )
        return checkpoint.sign(purged.checkpoint(at.origin), self._ring.signer)

    async def _finish(self, tenant_id: str, anchor: Anchor | None) -> tuple[Anchor | None, int]:
        """Complete a committed purge; return the anchor and the number of removed entries."""
        if anchor is None or anchor.finished_at is not None:
            return anchor, 0
        await self._cover(tenant_id, anchor)
        # If we die here, or between two steps, rows below the anchor are left. Readers and
        # verification ignore them, and the next run finds the purge unfinished.
        removed = await self._remove(tenant_id, anchor)
        return await self._anchor(tenant_id), removed

    async def _cover(self, tenant_id: str, anchor: Anchor) -> None:
        """Store a checkpoint that includes the `purge` entry, after reading the entry back
        unchanged."""
        wanted = {"tenant": tenant_id, "seq": anchor.seq}
        async with self._store.reading(tenant_id) as connection:
            row = (await connection.execute(_COVER, wanted)).one_or_none()
        # Check both before any row goes: the database may have changed since the commit.
        if row is None or leaf_hash(row.entry) != row.hash or not anchor.matches_entry(row.entry):
            raise PurgeMismatch(
                f"entry {anchor.seq} is not the `purge` entry that was written there"
            )
        if fault := anchor.fault(row.log, await log_keys.trusted(self._store, self._ring)):
            raise PurgeMismatch(f"log `{row.log}`: {fault}")
        if anchor.cover_note is not None:
            return
        note = (await self._checkpoints.covering(tenant_id, anchor.seq + 1)).note
        # Two replicas may both sign, perhaps different sizes. Both notes are true; the first stays.
        await self._store.write(
            tenant_id, lambda tx: purges.cover(tx.connection, tenant_id, anchor.seq, note)
        )

    async def _remove(self, tenant_id: str, anchor: Anchor) -> int:
        removed, limit, last = 0, FIRST_STEP, False
        while not last:
            async with self._store.reading(tenant_id) as connection:
                step = await purges.plan(connection, tenant_id, anchor, limit)
            try:
                seconds = await self._remove_step(tenant_id, anchor, step)
            except RowsGone:
                # Another replica is removing rows too, or has even begun the next purge.
                now = await self._anchor(tenant_id)
                if now is None or now.seq != anchor.seq or now.finished_at is not None:
                    return removed
                continue
            removed, last = removed + step.entries, step.last
            await asyncio.sleep(2 * seconds)
            factor = min(2.0, STEP_SECONDS / max(seconds, 1e-6))
            limit = max(MIN_STEP, min(MAX_STEP, int(limit * factor)))
        return removed

    async def _remove_step(self, tenant_id: str, anchor: Anchor, step: RemovalStep) -> float:
        """Remove the rows of a step; return for how many seconds other writers had to wait."""
        clock = self._store.clock

        def work(connection: Connection, _: bool) -> float:
            start = clock.monotonic()
            purges.remove(connection, tenant_id, anchor, step, clock.now())
            return clock.monotonic() - start

        return await self._store.run(self._store.lane(tenant_id), work)

    async def _drop_expired_counts(self, tenant_id: str) -> None:
        now = self._store.clock.now()

        def work(connection: Connection, _: bool) -> bool:
            purges.lock(connection, tenant_id)
            return drop_expired(connection, tenant_id, now, MAX_STEP)

        left = True
        while left:
            left = await self._store.run(self._store.lane(tenant_id), work)
            await asyncio.sleep(2 * STEP_SECONDS)


# One statement, so that head and entry are from the same moment.
_COVER = (
    select(log_heads.c.log, *log_entries.c["entry", "hash"])
    .join(log_entries, of_tenant(log_entries, log_heads.c.tenant_id))
    .where(
        of_tenant(log_heads),
        log_entries.c.seq == bindparam("seq"),
        log_heads.c.size > bindparam("seq"),
    )
)
