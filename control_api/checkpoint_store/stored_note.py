"""What every checkpoint store can do.

A store holds one numbered series of notes per tenant. A note is put at the number after the latest
one, and only if that number is still free. So of two writers that both saw the same latest note,
one is refused and has to look again: every note was compared with the one before it, and a log that
was forked can't have both of its branches in one store.

Calls block, so a service makes them in a thread. Knows nothing of databases or signatures: the
reader of a note verifies it.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from policies.ground.errors import Unavailable

MAX_NOTE = 64 * 1024
"""The most bytes that a store reads of a note. A note with many cosignatures has some 10 KiB."""


class CheckpointStoreFault(Unavailable):
    """the checkpoint store does not answer at the moment"""


class StoredNote(NamedTuple):
    """The note at one place of a tenant's series. `note` is as it was found: not verified."""

    number: int
    note: str


class CheckpointStore(Protocol):
    """The notes of every tenant. All methods raise `CheckpointStoreFault` if the store fails."""

    def latest(self, tenant_id: str) -> StoredNote | None:
        """The note with the highest number, or None if the tenant has none."""
        ...

    def put(self, tenant_id: str, number: int, note: str) -> bool:
        """Stores a note, durably when this returns. False if `number` is taken, or was passed."""
        ...

    def notes(self, tenant_id: str) -> Iterator[StoredNote]:
        """The tenant's kept notes, newest first."""
        ...

    def tenants(self) -> list[str]:
        """Every tenant that may have a note, in order."""
        ...
