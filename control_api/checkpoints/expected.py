"""What a log has to agree with before it is signed again: the checkpoints in the store outside and
in its own database.

The store decides, because those who write to the database can't change it. Reads no entry of the
log.
"""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from control_api.checkpoint_store.stored_note import CheckpointStore, StoredNote
from control_api.checkpoints.divergence import Diverged
from control_api.checkpoints.log_state import LogState, read_state
from control_api.store.queries import log_keys
from control_api.store.store import Store
from policies.ground.signing import KeyRing
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.findings import Finding, Reason


class Expected(NamedTuple):
    """`stored` is the latest note of the tenant in the store; `before` are the checkpoints that the
    log's tree must pass through, the smallest first; `publics` are the keys that may sign them."""

    state: LogState
    stored: StoredNote | None
    before: tuple[Checkpoint, ...]
    publics: tuple[bytes, ...]

    @property
    def note(self) -> str | None:
        """The note of the log's present size, if it was signed already."""
        published, size = self.state.published, self.state.size
        # All of `before` are read from these two notes, so a note of this size is a valid one.
        if self.stored is not None and checkpoint.unverified(self.stored.note).size == size:
            return self.stored.note
        if published is not None and published.size == size and self.before:
            return published.note if self.before[-1].size == size else None
        return None


async def read_expected(
    store: Store, ring: KeyRing, notes: CheckpointStore, tenant_id: str
) -> Expected:
    """Raises `Diverged` if the log contradicts its checkpoints already by its size or name, and
    `Unavailable` if the database or the checkpoint store does not answer."""
    # The store comes first: other replicas append and sign meanwhile, so a log that was read before
    # the store could look smaller than its latest checkpoint.
    stored = await asyncio.to_thread(notes.latest, tenant_id)
    async with store.reading(tenant_id) as connection:
        state = await read_state(connection, tenant_id)
    if stored is None and not state.size:
        return Expected(state, None, (), ())
    publics = await log_keys.trusted(store, ring)
    before = []
    if stored is not None:
        before.append(_of_store(tenant_id, state, stored, publics))
    if state.published is not None:
        # A row that was edited proves nothing, and is passed over.
        with suppress(BadNote):
            before.append(checkpoint.read(state.published.note, state.origin, publics))
    if state.tree is None:
        text = "the log's head can't be read"
        raise Diverged(tenant_id, Finding(None, Reason.HEAD_MISMATCH, text))
    largest = max((each.size for each in before), default=0)
    if largest > state.size:
        text = f"a checkpoint counts {largest} entries, the log has only {state.size}"
        raise Diverged(tenant_id, Finding(state.size, Reason.LOG_BEHIND_CHECKPOINT, text))
    before.sort(key=lambda each: each.size)
    return Expected(state, stored, tuple(before), publics)


def _of_store(
    tenant_id: str, state: LogState, stored: StoredNote, publics: tuple[bytes, ...]
) -> Checkpoint:
    """The checkpoint of the store's latest note. Raises `Diverged` unless it is of this log."""
    reason, text = Reason.CHECKPOINT_UNREADABLE, "the store's latest note can't be read"
    try:
        said = checkpoint.unverified(stored.note)
        if said.origin != state.origin:
            # Emptied tables come back as a log of another name. It is behind, whatever its size.
            reason = Reason.LOG_BEHIND_CHECKPOINT
            text = (
                f"the store's latest checkpoint counts {said.size} entries of `{said.origin}`, but "
                + (f"this log is `{state.origin}`" if state.log else "there is no log")
            )
            raise BadNote(text)
        reason, text = Reason.SIGNATURE_MISSING, "the store's latest note is not signed by our key"
        return checkpoint.read(stored.note, state.origin, publics)
    except BadNote as error:
        raise Diverged(tenant_id, Finding(state.size, reason, text)) from error
