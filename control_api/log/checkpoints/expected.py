"""Determines which checkpoints a log has to agree with before it is signed again, and reads the
log's state as the database shows it.

The checkpoint store is authoritative, because those who write to the database can't change it. So
nothing that the database shows is believed until it was compared with that store.
"""

import asyncio
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.checkpoint_store.stored_note import CheckpointStore, StoredNote
from control_api.store.queries import checkpoints, log_keys
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.queries.purges import purged_size
from control_api.store.schema.log import log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.errors import SluiceError
from policies.ground.signing import KeyRing
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint, is_origin_of
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier


class LogState(NamedTuple):
    """The state of a tenant's log according to the database. `log` is the log's name, empty if the
    tenant has no log yet. `tree` is None if the head is not a valid one. `published` is the latest
    checkpoint of the current origin, None if there is none that can be read."""

    log: str
    origin: str
    size: int
    tree: Frontier | None
    published: StoredCheckpoint | None

    def checkpoint(self) -> Checkpoint:
        """Return the unsigned checkpoint of the log at its present size. Call it only if the head
        could be read."""
        assert self.tree is not None
        return Checkpoint(self.origin, self.size, self.tree.root())

    def frontier(self) -> bytes:
        assert self.tree is not None
        return self.tree.to_bytes()


async def read_state(connection: AsyncConnection, tenant_id: str) -> LogState:
    # The order matters: each checkpoint that is read here was published before the head was read,
    # so the head can't be smaller than it unless entries were removed.
    # Without one, such as after an edit by hand, the rows are read back from the beginning.
    published = await checkpoints.readable_latest(connection, tenant_id)
    incarnation = await checkpoints.latest_incarnation(connection, tenant_id)
    row = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
    log = "" if row is None else str(row.log)
    origin = log
    if incarnation is not None and is_origin_of(incarnation.origin, log):
        origin = incarnation.origin
    if published is not None and published.origin != origin:
        published = None
    size, tree = _tree(row)
    return LogState(log, origin, size, tree, published)


def _tree(row: Row[Any, Any, Any] | None) -> tuple[int, Frontier | None]:
    if row is None:
        return 0, Frontier()
    try:
        size = index(row.size)
        return size, Frontier.from_bytes(size, bytes(memoryview(row.frontier)))
    except (ValueError, TypeError):
        return 0, None


_HEAD = select(log_heads.c.log, log_heads.c.size, log_heads.c.frontier).where(of_tenant(log_heads))


class Diverged(SluiceError):
    """the log contradicts a checkpoint of its own: it is not signed until an operator decides"""

    status = 409

    finding: Finding
    note: str | None
    """The latest note in the checkpoint store, if there is one."""

    @classmethod
    def of(cls, tenant_id: str, finding: Finding, note: str | None = None) -> "Diverged":
        """Return the error for a tenant's log, with the finding that says in which way it
        diverged."""
        error = cls(f"the log of tenant `{tenant_id}` has diverged: {finding.text()}")
        error.finding, error.note = finding, note
        return error


class Expected(NamedTuple):
    """The checkpoints that a log has to agree with, beside the log's state. `stored` is the
    tenant's latest note in the checkpoint store, and `outside` the checkpoint that this note signs.
    `inside` is the latest checkpoint published in the database, None if its row is not valid.
    `publics` are the keys that may sign them."""

    state: LogState
    stored: StoredNote | None
    outside: Checkpoint | None
    inside: Checkpoint | None
    publics: tuple[bytes, ...]

    @property
    def before(self) -> list[Checkpoint]:
        """The checkpoints that the log's tree must pass through, in order of size."""
        found = [each for each in (self.outside, self.inside) if each is not None]
        return sorted(found, key=lambda each: each.size)

    @property
    def is_stored(self) -> bool:
        """True if the checkpoint store has a checkpoint of the log's present size."""
        return self.outside is not None and self.outside.size == self.state.size

    @property
    def latest(self) -> str | None:
        """The note of the largest checkpoint, None if there is none. At equal size the published
        one is preferred, because it has its cosignatures too."""
        published = self.state.published
        outside = -1 if self.outside is None else self.outside.size
        if self.inside is not None and published is not None and self.inside.size >= outside:
            return published.note
        return None if self.stored is None else self.stored.note

    @property
    def note(self) -> str | None:
        """A note of the log's present size, None if that size was not signed yet."""
        if self.stored is not None and self.is_stored:
            return self.stored.note
        signed = self.inside is not None and self.inside.size == self.state.size
        return self.latest if signed else None


async def read_expected(
    store: Store, ring: KeyRing, notes: CheckpointStore, tenant_id: str
) -> Expected:
    """Read the log's state and the checkpoints that it has to agree with. Raises `Diverged` if the
    log contradicts its checkpoints already by its size, its name or what was purged, and
    `Unavailable` if the database or the checkpoint store does not answer."""
    # INVARIANT: anchor, store, log, in this order. Other replicas sign and purge meanwhile. A purge
    # is committed only once the store has a checkpoint of what it removes, so a store that was read
    # after the anchor has it. The log has what the store has signed only if it is read later.
    async with store.reading(tenant_id) as connection:
        purged = await purged_size(connection, tenant_id)
    stored = await asyncio.to_thread(notes.latest, tenant_id)
    async with store.reading(tenant_id) as connection:
        state = await read_state(connection, tenant_id)
    publics = await log_keys.trusted(store, ring)
    note = None if stored is None else stored.note
    outside = None if stored is None else _of_store(tenant_id, state, stored, publics)
    inside = None
    if state.published is not None:
        # A row that was edited proves nothing, and is passed over.
        with suppress(BadNote):
            inside = checkpoint.read(state.published.note, state.origin, publics)
    if state.tree is None:
        finding = Finding(None, Reason.HEAD_MISMATCH, "the log's head can't be read")
        raise Diverged.of(tenant_id, finding, note)
    expected = Expected(state, stored, outside, inside, publics)
    for each in expected.before:
        if each.size > state.size:
            text = f"a checkpoint counts {each.size} entries, the log has only {state.size}"
            raise Diverged.of(
                tenant_id, Finding(state.size, Reason.LOG_BEHIND_CHECKPOINT, text), note
            )
        if each.size < purged:
            # Nothing is left that this checkpoint could be compared with.
            text = (
                f"the first {purged} entries were purged, but a checkpoint is of only {each.size}: "
                "a purge first has a larger one stored outside"
            )
            raise Diverged.of(tenant_id, Finding(purged, Reason.PURGE_UNCOVERED, text), note)
    return expected


def _of_store(
    tenant_id: str, state: LogState, stored: StoredNote, publics: tuple[bytes, ...]
) -> Checkpoint:
    """Return the checkpoint that the store's latest note signs. Raises `Diverged` unless that is a
    checkpoint of this log."""
    reason, text = Reason.CHECKPOINT_UNREADABLE, "the store's latest note can't be read"
    try:
        last = checkpoint.unverified(stored.note)
        if last.origin != state.origin:
            # Emptied tables come back as a log of another name. It is behind, whatever its size.
            reason = Reason.LOG_BEHIND_CHECKPOINT
            text = (
                f"the store's latest checkpoint counts {last.size} entries of `{last.origin}`, but "
                + (f"this log is `{state.origin}`" if state.log else "there is no log")
            )
            raise BadNote(text)
        reason, text = Reason.SIGNATURE_MISSING, "the store's latest note is not signed by our key"
        return checkpoint.read(stored.note, state.origin, publics)
    except BadNote as error:
        raise Diverged.of(tenant_id, Finding(state.size, reason, text), stored.note) from error
