"""What a published note proves by its signatures: unsigned, signed, or witnessed by a quorum.

Pure. Verifies the note; the number stored beside it is not believed.
"""

from collections.abc import Collection
from enum import StrEnum

from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote
from policies.trail.proofs import signed_note
from policies.trail.proofs.signed_note import Signature, VerifierKey


class Level(StrEnum):
    """How much a checkpoint proves."""

    unsigned = "unsigned"
    """There is no checkpoint, or the log's key has not signed it."""
    signed = "signed"
    """By the log's key: those who have it could have rewritten the log."""
    witnessed = "witnessed"
    """And cosigned by the quorum of witnesses: a rewritten log would not be."""


def level_of(
    note: str | None,
    origin: str,
    publics: Collection[bytes],
    witnesses: Collection[VerifierKey],
    quorum: int,
) -> tuple[Level, int]:
    """The level of the note of log `origin`, and how many of the witnesses have cosigned it."""
    if note is None:
        return Level.unsigned, 0
    try:
        checkpoint.read(note, origin, publics)
        count = len(signed_note.verified_cosignatures(signed_note.parse(note), witnesses))
    except BadNote:
        return Level.unsigned, 0
    # Without a witness there is no quorum to reach.
    return (Level.witnessed if 0 < quorum <= count else Level.signed), count


def cosigners(note: str, witnesses: Collection[VerifierKey]) -> list[str]:
    """The names of those of the witnesses whose cosignature is on the note, in order. Verifies no
    cosignature, so that a list of many notes stays cheap; `level_of` does."""
    try:
        lines = {(each.name, each.key_id) for each in signed_note.parse(note).signatures}
    except BadNote:
        return []
    return sorted({each.name for each in witnesses if (each.name, each.key_id) in lines})


def merged(
    note: str, lines: Collection[Signature], witnesses: Collection[VerifierKey]
) -> tuple[str, int]:
    """The note with these lines, and how many witnesses have cosigned it. Of each key one line
    stays, the newest. Raises `BadNote` if a line or the note can't be used."""
    parsed = signed_note.parse(note)
    replaced = {(each.name, each.key_id) for each in lines}
    kept = tuple(each for each in parsed.signatures if (each.name, each.key_id) not in replaced)
    made = parsed._replace(signatures=(*kept, *lines))
    return made.render(), len(signed_note.verified_cosignatures(made, witnesses))
