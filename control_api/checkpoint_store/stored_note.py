"""Defines what every checkpoint store can do, and adds cosignatures to a note later.

A note is put at the number after the tenant's latest one, and only if that is still free. So of two
writers that saw the same latest note, one is refused and has to look again: a log that was forked
can't have both of its branches in one store. What a witness has cosigned is stored beside the
series, a whole note each, so that no note is ever replaced.

Calls block, so a service makes them in a thread. No signature is verified here.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from policies.ground.errors import Unavailable
from policies.trail.checkpoint import BadNote
from policies.trail.proofs import signed_note

COSIGNED = "cosigned"
"""The folder of a tenant's cosigned notes, in which each witness has one."""
MAX_WITNESSES = 50
"""Of so many witnesses a store reads the latest note."""
MAX_NOTE = 64 * 1024
"""The most bytes that a store reads of a note. A note with many cosignatures has some 10 KiB."""


class CheckpointStoreFault(Unavailable):
    """the checkpoint store does not answer at the moment"""


class StoredNote(NamedTuple):
    """The note at one place of a tenant's series. `note` is as it was found: not verified."""

    number: int
    note: str


class CosignedNote(NamedTuple):
    """A note with the cosignature of the witness whose key id is `witness`, 8 hex digits. Of one
    log, `incarnation` and `size` never decrease together."""

    witness: str
    incarnation: int
    size: int
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

    def put_cosigned(self, tenant_id: str, cosigned: CosignedNote) -> None:
        """Stores a cosigned note, durably when this returns. One of the same witness and place
        that is there already stays."""
        ...

    def cosigned(self, tenant_id: str) -> list[str]:
        """The latest cosigned note of each witness."""
        ...

    def tenants(self) -> list[str]:
        """Every tenant that may have a note, in order."""
        ...


def cosigned(notes: CheckpointStore, tenant_id: str, note: str) -> str:
    """The note with the cosignatures that the store has for it; a note that can't be read stays as
    it is. Raises `CheckpointStoreFault`."""
    try:
        return signed_note.joined(note, notes.cosigned(tenant_id))
    except BadNote:
        return note
