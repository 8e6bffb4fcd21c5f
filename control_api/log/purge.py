"""Retention of one tenant's log: a prefix goes, and what is left still proves itself.

    prove      what is old enough is read back and held against itself (`prefix`)
    commit     the signed note of its size, the `purge` entry, the anchor: one transaction
    cover      the signed note of a size with the `purge` entry in it
    remove     the rows, a few at a time

A crash anywhere leaves a log that verifies, and a purge that the next run takes up where it was.
Two replicas at once are one purge. Knows nothing of when to run, nor of whose log is next.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from control_api.log.purge_plan import Due, PurgeMismatch, cutoff_of, prove
from control_api.store.counters.counters import drop_expired
from control_api.store.queries import log_keys, purges
from control_api.store.schema.tables import log_entries, log_heads
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.signing import KeyRing
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.purge import Anchor

FEWEST, FIRST, MOST = 8, 64, 512
"""Entries of one deletion. On SQLite whoever evaluates waits for it: so it is as many as take
`LONGEST` seconds, and they get twice that after it."""
LONGEST = 0.003


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What one run came to: rows that it removed, and the anchor of the log after it."""

    removed: int
    anchor: Anchor | None


class Purge:
    """Purges of one store's logs. `new_id` makes ids of entries."""

    def __init__(self, store: Store, ring: KeyRing, new_id: Callable[[], str]) -> None:
        self._store = store
        self._ring = ring
        self._new_id = new_id

    async def run(self, tenant_id: str) -> PurgeResult:
        """`PurgeMismatch` where the log does not hold; `Unavailable` where the database fails."""
        # A run that died after its commit left rows below its anchor, which nobody sees any more.
        anchor, removed = await self._finish(tenant_id, await self._anchor(tenant_id))
        begun = await self._begin(tenant_id, anchor)
        if begun is not None:
            anchor, more = await self._finish(tenant_id, begun)
            removed += more
        await self._forget(tenant_id)
        return PurgeResult(removed, anchor)

    async def _anchor(self, tenant_id: str) -> Anchor | None:
        async with self._store.reading(tenant_id) as connection:
            try:
                return await purges.latest_anchor(connection, tenant_id)
            except (ValueError, TypeError) as error:
                raise PurgeMismatch(f"the anchor of tenant `{tenant_id}` can't be read") from error

    async def _begin(self, tenant_id: str, before: Anchor | None) -> Anchor | None:
        """The anchor of a purge that is committed; None where nothing is old enough, or another
        replica was first."""
        try:
            # Reads alone: if we die in it, nothing has happened.
            due = await prove(self._store, tenant_id, before, await self._believed())
        except PurgeMismatch:
            if await self._anchor(tenant_id) != before:
                return None  # another replica purged what was being looked at
            raise
        return None if due is None else await self._commit(tenant_id, before, due)

    async def _commit(self, tenant_id: str, before: Anchor | None, due: Due) -> Anchor | None:
        purged = due.purged
        note = checkpoint.sign(purged.checkpoint(due.log), self._ring.signer)

        async def work(tx: Transaction) -> Anchor | None:
            # The tenant's row is ours: whoever purged or set the retention meanwhile has committed.
            if await purges.latest_anchor(tx.connection, tenant_id) != before:
                return None
            allowed = await cutoff_of(tx.connection, tenant_id, tx.now)
            if allowed is None or allowed < purged.cutoff:
                return None
            appended = await tx.append(purged.record(self._new_id()))
            anchor = Anchor(appended.seq, purged, appended.ts, note, None, None)
            await purges.add(tx.connection, tenant_id, anchor)
            return anchor

        # Before the commit nothing has happened, and the note is of no use to anyone. After it the
        # prefix is gone for every reader, all of its rows are there, and the next run goes on.
        return await self._store.write(tenant_id, work)

    async def _finish(self, tenant_id: str, anchor: Anchor | None) -> tuple[Anchor | None, int]:
        """Bring a purge that was committed to its end; the anchor then, and how many rows went."""
        if anchor is None or anchor.finished_at is not None:
            return anchor, 0
        await self._cover(tenant_id, anchor)
        # If we die here, or between two deletions, rows below the anchor are left. Verification
        # looks past them, readers do too, and the next run finds the purge unfinished.
        removed = await self._remove(tenant_id, anchor)
        return await self._anchor(tenant_id), removed

    async def _believed(self) -> tuple[bytes, ...]:
        return await log_keys.trusted(self._store, self._ring)

    async def _cover(self, tenant_id: str, anchor: Anchor) -> None:
        """Sign for a size with the `purge` entry in it, once that is read back as it was made."""
        wanted = {"tenant": tenant_id, "seq": anchor.seq}
        async with self._store.reading(tenant_id) as connection:
            row = (await connection.execute(_COVER, wanted)).one_or_none()
        # The database has had both to itself since the commit, and rows go by what it says.
        if row is None or leaf_hash(row.entry) != row.hash or not anchor.matches_entry(row.entry):
            raise PurgeMismatch(
                f"entry {anchor.seq} is not the `purge` entry that was written there"
            )
        if fault := anchor.fault(row.log, await self._believed()):
            raise PurgeMismatch(f"log `{row.log}`: {fault}")
        if anchor.cover_note is not None:
            return
        root = Frontier.from_bytes(row.size, row.frontier).root()
        note = checkpoint.sign(Checkpoint(row.log, row.size, root), self._ring.signer)

        async def work(tx: Transaction) -> None:
            await purges.cover(tx.connection, tenant_id, anchor.seq, note)

        # Two replicas may both sign, perhaps for two sizes: both notes are true, the first is kept.
        await self._store.write(tenant_id, work)

    async def _remove(self, tenant_id: str, anchor: Anchor) -> int:
        removed, most, last = 0, FIRST, False
        while not last:
            async with self._store.reading(tenant_id) as connection:
                planned = await purges.plan(connection, tenant_id, anchor, most)
            try:
                took = await self._remove_some(tenant_id, anchor, planned)
            except purges.RowsGone:
                # Another replica removes too, or has already begun the next purge.
                now = await self._anchor(tenant_id)
                if now is None or now.seq != anchor.seq or now.finished_at is not None:
                    return removed
                continue
            removed, last = removed + planned.entries, planned.last
            await asyncio.sleep(2 * took)
            most = max(FEWEST, min(MOST, int(most * min(2.0, LONGEST / max(took, 1e-6)))))
        return removed

    async def _remove_some(self, tenant_id: str, anchor: Anchor, planned: purges.RemovalStep) -> float:
        """For how many seconds everyone else who writes had to wait for it."""
        clock = self._store.clock

        def work(connection: Connection, _: bool) -> float:
            start = clock.monotonic()
            purges.remove(connection, tenant_id, anchor, planned, clock.now())
            return clock.monotonic() - start

        return await self._store.run(self._store.lane(tenant_id), work)

    async def _forget(self, tenant_id: str) -> None:
        """Counts of a time that nobody may ask for any more go too."""
        now = self._store.clock.now()

        def work(connection: Connection, _: bool) -> bool:
            purges.lock(connection, tenant_id)
            return drop_expired(connection, tenant_id, now, MOST)

        left = True
        while left:
            left = await self._store.run(self._store.lane(tenant_id), work)
            await asyncio.sleep(2 * LONGEST)


# In one statement: head and entry as they were at one moment.
_COVER = (
    select(
        log_heads.c.log,
        log_heads.c.size,
        log_heads.c.frontier,
        log_entries.c.entry,
        log_entries.c.hash,
    )
    .join(log_entries, log_entries.c.tenant_id == log_heads.c.tenant_id)
    .where(
        log_heads.c.tenant_id == bindparam("tenant"),
        log_entries.c.seq == bindparam("seq"),
        log_heads.c.size > bindparam("seq"),
    )
)
