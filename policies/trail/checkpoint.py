"""Checkpoints of a log: its size and root at one time, signed (C2SP `tlog-checkpoint`).

    <origin>\\n<size>\\n<base64 root>\\n\\n— <name> <base64(key id ‖ signature)>\\n

The origin and the key's name are both the log's name. Knows the note and its signature. Doesn't
know where notes are stored.
"""

from collections.abc import Collection
from typing import NamedTuple

from policies.ground.canonical import b64, unb64
from policies.ground.signing import Signer
from policies.trail.proofs import signed_note
from policies.trail.proofs.nodes import HASH, MAX_SIZE
from policies.trail.proofs.signed_note import ED25519, BadNote, Note, VerifierKey, key_id

__all__ = ["BadNote", "Checkpoint", "key_id", "parse", "read", "sign", "unverified"]


class Checkpoint(NamedTuple):
    """The log `origin` at `size` entries, with the root of its tree at that size (32 bytes)."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return the signed text."""
        return f"{self.origin}\n{self.size}\n{b64(self.root)}\n"


def sign(checkpoint: Checkpoint, signer: Signer) -> str:
    """Return the signed note."""
    text = checkpoint.text()
    return Note(text, (signed_note.sign(text, checkpoint.origin, signer),)).render()


def unverified(note: str) -> Checkpoint:
    """Return the content of a note, without a look at its signatures. Raises `BadNote` if it can't
    be read."""
    return parse(signed_note.parse(note).text)


def read(note: str, origin: str, publics: Collection[bytes]) -> Checkpoint:
    """Return the note's checkpoint of the log `origin`. Raises `BadNote` unless the note is written
    exactly as `sign` writes it and is signed by one of the keys in `publics`. Signatures by others
    are ignored, so that witnesses may cosign."""
    parsed = signed_note.parse(note)
    checkpoint = parse(parsed.text)
    # A signature covers the exact text, so any other spelling would be another checkpoint. This
    # also rules out extension lines.
    if checkpoint.origin != origin or checkpoint.text() != parsed.text:
        raise BadNote(f"the note is not a checkpoint of log `{origin}`")
    keys = [VerifierKey(origin, ED25519, public) for public in publics]
    if not signed_note.verified(parsed, keys):
        raise BadNote(f"the note on log `{origin}` is not signed by the log's key")
    return checkpoint


def parse(text: str) -> Checkpoint:
    """Return the checkpoint in the text of any log's note. Lines after the first three are its own
    extensions, and ignored. Raises `BadNote` if the text is not a `tlog-checkpoint`."""
    lines = text.split("\n")
    try:
        origin, size, root, *extensions, end = lines
        checkpoint = Checkpoint(origin, int(size), unb64(root))
    except ValueError as error:
        raise BadNote("the note is not in the form of a checkpoint") from error
    # Re-encoding must give the same lines, which rules out other spellings of the size, such as
    # `+5` or `05`.
    if (
        not text.startswith(checkpoint.text())
        or not origin
        or end
        or not all(extensions)
        or not 0 <= checkpoint.size <= MAX_SIZE
        or len(checkpoint.root) != HASH
    ):
        raise BadNote("the note is not in the form of a checkpoint")
    return checkpoint
