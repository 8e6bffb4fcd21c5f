"""Defines the interface of checkpoint stores, and adds cosignatures to a note later.

A note is put at the number after the tenant's latest one, and only if that number is still free. So
of two writers that saw the same latest note, one is refused and has to look again: a log that was
forked can't have both of its branches in one store. Notes that a witness has cosigned are stored
beside the numbered series, as whole notes, so that no note is ever replaced.

Calls block, so a service makes them in a thread. No signature is verified here.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from policies.ground.errors import Unavailable
from policies.trail.checkpoint import BadNote
from policies.trail.proofs import signed_note

COSIGNED = "cosigned"
"""The name of the folder with a tenant's cosigned notes, which has one for each witness."""
MAX_WITNESSES = 50
"""The most witnesses of whom a store reads the latest cosigned note."""
MAX_NOTE = 64 * 1024
"""The most bytes that a store reads of a note. A note with many cosignatures has some 10 KiB."""


class CheckpointStoreFault(Unavailable):
    """the checkpoint store does not answer at the moment"""


class StoredNote(NamedTuple):
    """A note at one number of a tenant's series. `note` is the text as it was found, not
    verified."""

    number: int
    note: str


class CosignedNote(NamedTuple):
    """A note with the cosignature of the witness whose key id is `witness`, 8 hex digits. Among the
    notes of one log, the pair of `incarnation` and `size` never decreases."""

    witness: str
    incarnation: int
    size: int
    note: str


class CheckpointStore(Protocol):
    """A store of signed notes for every tenant. All methods raise `CheckpointStoreFault` if the
    store fails."""

    def latest(self, tenant_id: str) -> StoredNote | None:
        """Return the tenant's note with the highest number, or None if the tenant has none."""
        ...

    def put(self, tenant_id: str, number: int, note: str) -> bool:
        """Store a note durably before returning. Return False if `number` is taken, or lower than
        the latest."""
        ...

    def notes(self, tenant_id: str) -> Iterator[StoredNote]:
        """Yield the tenant's kept notes, newest first."""
        ...

    def put_cosigned(self, tenant_id: str, cosigned: CosignedNote) -> None:
        """Store a cosigned note durably before returning. If there is one of the same witness,
        incarnation and size already, it stays."""
        ...

    def cosigned(self, tenant_id: str) -> list[str]:
        """Return the text of each witness's latest cosigned note."""
        ...

    def tenants(self) -> list[str]:
        """Return the sorted ids of all tenants that may have a note."""
        ...


def cosigned(notes: CheckpointStore, tenant_id: str, note: str) -> str:
    """Return the note with the cosignatures that the store has for it. A note that can't be parsed
    is returned unchanged. Raise `CheckpointStoreFault` if the store fails."""
    try:
        return signed_note.joined(note, notes.cosigned(tenant_id))
    except BadNote:
        return note
