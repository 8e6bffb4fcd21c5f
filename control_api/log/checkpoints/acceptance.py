"""Lets a log that diverged from its checkpoints go on as a new incarnation, when an operator says
so. A new incarnation has a new origin (its name in checkpoints).

    entry       an `incarnation` entry that cites the last note, and the row of the incarnation
    note        the first checkpoint under the new origin, put into the store behind the last note
    publish     like every checkpoint

INVARIANT: only the note in the store ends a divergence, and signing it takes the log's key. An
incarnation that someone writes into the database changes nothing.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from control_api.checkpoint_store.stored_note import CheckpointStore, StoredNote, cosigned
from control_api.log.checkpoints.agreement import read_agreeing
from control_api.log.checkpoints.expected import Diverged, Expected, LogState, read_state
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.store.queries import checkpoints, log_keys
from control_api.store.queries.checkpoints import StoredCheckpoint, StoredIncarnation
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict, Unavailable
from policies.ground.signing import KeyRing
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, accepted_incarnation_record, origin_of, split_origin


class Accepted(NamedTuple):
    """The result of accepting a log as a new incarnation: the new origin, the `seq` of the
    `incarnation` entry, and the first checkpoint under the new origin."""

    origin: str
    seq: int
    checkpoint: StoredCheckpoint


class Acceptance:
    def __init__(
        self, store: Store, ring: KeyRing, notes: CheckpointStore, new_id: Callable[[], str]
    ) -> None:
        self._store = store
        self._ring = ring
        self._notes = notes
        self._new_id = new_id
        self._maker = CheckpointMaker(store, ring, notes)

    async def accept(self, tenant_id: str, reason: str) -> Accepted:
        """Accept the log as a new incarnation, and publish its first checkpoint. Raises `Conflict`
        if the log agrees with its checkpoints, `Diverged` if its rows do not even lead to its own
        head, `NotFound` if there is no such tenant, and `Unavailable`."""
        try:
            await self._maker.make(tenant_id)
        except Diverged:
            last = await asyncio.to_thread(self._latest, tenant_id)
        else:
            raise Conflict(f"the log of tenant `{tenant_id}` agrees with its checkpoints")
        incarnation = await self._store.write(tenant_id, lambda tx: self._begin(tx, last, reason))
        # The entry is committed. If we die here, the log is still refused; the same command again
        # finds the entry, and goes on from it.
        await self._put_first(tenant_id, last)
        # The store has the first note of the new origin. If we die here, the service publishes it.
        made = await self._maker.make(tenant_id)
        assert made is not None  # the log has an entry at least
        return Accepted(incarnation.origin, incarnation.seq, made)

    def _latest(self, tenant_id: str) -> StoredNote | None:
        last = self._notes.latest(tenant_id)
        # The entry cites it with what witnesses said of it: the database may have lost that.
        return last and last._replace(note=cosigned(self._notes, tenant_id, last.note))

    async def _begin(
        self, tx: Transaction, last: StoredNote | None, reason: str
    ) -> StoredIncarnation:
        """Append the `incarnation` entry, unless an earlier run has done so before it died."""
        state = await read_state(tx.connection, tx.tenant_id)
        cited = _cited(last, state)
        before = await checkpoints.latest_incarnation(tx.connection, tx.tenant_id)
        # Of the cited note only the text counts: a cosignature may have come since.
        if before is not None and (before.origin, _text(before.cited_note)) == (
            state.origin,
            _text(cited or ""),
        ):
            return before
        if not state.log:
            raise Conflict(f"tenant `{tx.tenant_id}` has no log yet")
        # The store may know of an incarnation that the database has lost.
        numbers = (split_origin(checkpoint.unverified(cited).origin)[1],) if cited else ()
        number = 1 + max(0 if before is None else before.number, *numbers, 0)
        record = accepted_incarnation_record(
            state.log, number, cited, reason, record_id=self._new_id()
        )
        seq = (await tx.append(record)).seq
        made = StoredIncarnation(number, origin_of(state.log, number), seq, cited or "", tx.now)
        await checkpoints.add_incarnation(tx.connection, tx.tenant_id, made)
        return made

    async def _put_first(self, tenant_id: str, last: StoredNote | None) -> None:
        async with self._store.reading(tenant_id) as connection:
            state = await read_state(connection, tenant_id)
        if state.tree is None:
            raise Conflict(f"the head of the log of tenant `{tenant_id}` can't be read")
        publics = await log_keys.trusted(self._store, self._ring)
        # Nothing is expected of the log any more, but its rows must still lead to its head.
        await read_agreeing(self._store, tenant_id, Expected(state, last, None, None, publics))
        note = checkpoint.sign(state.checkpoint(), self._ring.signer)
        number = 1 if last is None else last.number + 1
        if not await asyncio.to_thread(self._notes.put, tenant_id, number, note):
            raise Unavailable(f"another process has just signed the log of tenant `{tenant_id}`")


def _text(note: str) -> str:
    """Return the part of a note that its signatures sign."""
    return note.partition("\n\n")[0]


def _cited(last: StoredNote | None, state: LogState) -> str | None:
    """Return the text of the last known note, which the new incarnation cites; None if it can't be
    read."""
    published = None if state.published is None else state.published.note
    note = published if last is None else last.note
    try:
        checkpoint.unverified(note or "")
    except BadNote:
        return None
    return note
