"""Adds to a note of the checkpoint store what witnesses have cosigned since. Blocks; verifies
nothing."""

from control_api.checkpoint_store.stored_note import CheckpointStore
from policies.trail.checkpoint import BadNote
from policies.trail.proofs import signed_note


def cosigned(notes: CheckpointStore, tenant_id: str, note: str) -> str:
    """The note with the cosignatures that the store has for it; a note that can't be read stays as
    it is. Raises `CheckpointStoreFault`."""
    try:
        return signed_note.joined(note, notes.cosigned(tenant_id))
    except BadNote:
        return note
