"""Makes the checkpoints of logs: reads entries back, compares them with earlier checkpoints, signs,
puts the note into the checkpoint store, and publishes it.

INVARIANT: in this order, each step durable before the next. A note is signed only over rows that
were read back and that agree with every checkpoint before, and is published only once the
checkpoint store has it. Any number of replicas may do this at once: of two that want to follow the
same note, the store refuses one.
"""

import asyncio
import logging
from typing import NamedTuple

from control_api.checkpoint_store.stored_note import CheckpointStore, cosigned
from control_api.log.checkpoints.agreement import StoredNode, read_agreeing
from control_api.log.checkpoints.expected import Diverged, Expected, read_expected
from control_api.log.purge_plan import PurgeMismatch
from control_api.log.verify import SignedHistory
from control_api.store.queries import checkpoints, tree_nodes
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.errors import Unavailable
from policies.ground.signing import KeyRing
from policies.trail import checkpoint
from policies.trail.findings import Finding
from policies.trail.proofs import signed_note

MAX_PUTS = 10
"""The number of times that a new note is made and put into the checkpoint store. Each time, another
replica may put its note there first."""
REREAD_SECONDS = 600.0
"""Seconds until the rows of a log that contradicted its checkpoints are read again."""
SPLIT_SECONDS = 7200.0
"""Seconds for which `store_is_split` stays true after the store lacked a published checkpoint.
Every log is compared once an hour, so it does not lapse between two comparisons."""
_log = logging.getLogger("sluice.checkpoints")


class _Contradiction(NamedTuple):
    """A finding of reading a log's rows back, kept so that they are not read again before `until`,
    or before the store has another latest note than that of `number`."""

    finding: Finding
    number: int | None
    until: float


class CheckpointMaker:
    """Makes checkpoints of the logs of one database, and remembers which of them diverged."""

    def __init__(self, store: Store, ring: KeyRing, notes: CheckpointStore) -> None:
        self._store = store
        self._ring = ring
        self._notes = notes
        self._contradictions: dict[str, _Contradiction] = {}
        self.diverged: dict[str, Finding] = {}
        """The logs that this process refuses to sign, by tenant."""
        self._split_until = 0.0

    @property
    def store_is_split(self) -> bool:
        """True if another process publishes checkpoints that this process's checkpoint store does
        not get. All replicas must share one store."""
        return self._store.clock.monotonic() < self._split_until

    async def make(self, tenant_id: str) -> StoredCheckpoint | None:
        """Return the latest checkpoint of the log; sign a new one first if the log has grown. None
        for a log without entries. Raises `Diverged`, or `Unavailable` if the database or the
        checkpoint store does not answer."""
        try:
            made = await self._make(tenant_id)
        except Diverged as error:
            self.refuse(tenant_id, error)
            raise
        if self.diverged.pop(tenant_id, None) is not None:
            _log.warning(
                "recovered: the log of tenant `%s` agrees with its checkpoints again", tenant_id
            )
        return made

    async def tenants_outside(self) -> list[str]:
        """Return the ids of the tenants that have notes in the checkpoint store. Raises
        `Unavailable`."""
        return await asyncio.to_thread(self._notes.tenants)

    async def covering(self, tenant_id: str, size: int) -> StoredCheckpoint:
        """Return a checkpoint of at least `size` entries, for a purge. Raises `PurgeMismatch` if
        the log diverged or has fewer entries, and `Unavailable`."""
        try:
            made = await self.make(tenant_id)
        except Diverged as error:
            raise PurgeMismatch(str(error)) from error
        if made is None or made.size < size:
            raise PurgeMismatch(f"the log of tenant `{tenant_id}` has fewer than {size} entries")
        return made

    async def signed(self, tenant_id: str) -> SignedHistory:
        """Return the signed checkpoints of the log, for a verification to compare the log with.
        Raises `Unavailable`."""
        try:
            expected = await self._expected(tenant_id)
        except Diverged as error:
            note = error.note
            if note is not None:
                note = await asyncio.to_thread(cosigned, self._notes, tenant_id, note)
            return SignedHistory((), error.finding, note)
        return SignedHistory(tuple(expected.before), None, expected.latest)

    async def _expected(self, tenant_id: str) -> Expected:
        return await read_expected(self._store, self._ring, self._notes, tenant_id)

    def refuse(self, tenant_id: str, error: Diverged) -> None:
        """Remember that a log diverged, and report that in the service's own log, once for each
        finding."""
        if self.diverged.get(tenant_id) != error.finding:
            self.diverged[tenant_id] = error.finding
            _log.error(
                "%s; it is not signed until it agrees again, or an operator runs `sluice "
                "accept-incarnation --log %s --reason …`",
                error,
                tenant_id,
            )

    async def _make(self, tenant_id: str) -> StoredCheckpoint | None:
        for _ in range(MAX_PUTS):
            expected = await self._expected(tenant_id)
            state, stored = expected.state, expected.stored
            if not state.size:
                return None
            nodes = await self._read_back(tenant_id, expected)
            note = expected.note or checkpoint.sign(state.checkpoint(), self._ring.signer)
            # Only this process knows a new note. If we die here, it never existed.
            if not expected.is_stored:
                number = 1 if stored is None else stored.number + 1
                if not await asyncio.to_thread(self._notes.put, tenant_id, number, note):
                    continue  # another replica was first: look again
                self._log_if_split(tenant_id, expected)
            # The store has the note. If we die here, the next run finds it and publishes it.
            return await self._publish(tenant_id, expected, note, nodes)
        raise Unavailable(f"other processes are signing the log of tenant `{tenant_id}`")

    def _log_if_split(self, tenant_id: str, expected: Expected) -> None:
        """Log an error if the database has a published checkpoint that the checkpoint store lacks.
        Every replica that shares the store puts a checkpoint there before it publishes it, so the
        store has lost it or a replica uses another store."""
        stored, outside, inside = expected.stored, expected.outside, expected.inside
        published = expected.state.published
        if stored is None and published is not None:
            _log.error(
                "the checkpoint store has lost the checkpoints of tenant `%s`: it goes on "
                "from the one of %d entries in the database, which proves less",
                tenant_id,
                published.size,
            )
        elif outside is not None and inside is not None and outside.size < inside.size:
            if not self._split_until:
                _log.error(
                    "the checkpoint store lacks checkpoints of tenant `%s` that were published: it "
                    "has %d entries signed, the database %d. Another replica uses another store, or"
                    " this one was put back. All replicas must share one: SLUICE_CHECKPOINT_STORE",
                    tenant_id,
                    outside.size,
                    inside.size,
                )
            self._split_until = self._store.clock.monotonic() + SPLIT_SECONDS

    async def _read_back(self, tenant_id: str, expected: Expected) -> list[StoredNode]:
        """Return the nodes of the log's tree that are new. Raises `Diverged` unless the log's rows
        agree with the expected checkpoints."""
        number = None if expected.stored is None else expected.stored.number
        known, now = self._contradictions.pop(tenant_id, None), self._store.clock.monotonic()
        # Reading a whole log again every few seconds would only cost.
        if known is not None and known.number == number and now < known.until:
            self._contradictions[tenant_id] = known
            raise Diverged.of(tenant_id, known.finding)
        try:
            return await read_agreeing(self._store, tenant_id, expected)
        except Diverged as error:
            until = now + REREAD_SECONDS
            self._contradictions[tenant_id] = _Contradiction(error.finding, number, until)
            raise

    async def _publish(
        self, tenant_id: str, expected: Expected, note: str, nodes: list[StoredNode]
    ) -> StoredCheckpoint:
        state, published = expected.state, expected.state.published
        if published is not None and published.size == state.size:
            return published
        at, frontier, count = state.checkpoint(), state.frontier(), 0
        if expected.is_stored:
            # The database does not have it, or has lost it: then it may have cosignatures.
            note = await asyncio.to_thread(cosigned, self._notes, tenant_id, note)
            count = len(signed_note.parse(note).signatures) - 1

        async def work(tx: Transaction) -> StoredCheckpoint:
            await tree_nodes.extend(tx.connection, tenant_id, nodes)
            made = StoredCheckpoint(at.origin, at.size, at.root, frontier, note, tx.now, count)
            return await checkpoints.add(tx.connection, tenant_id, made)

        return await self._store.write(tenant_id, work)
