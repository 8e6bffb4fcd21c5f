"""Checkpoints of a log: its size and root at one time, signed (C2SP `tlog-checkpoint`).

    <origin>
<size>
<base64 root>

— <name> <base64(key id ‖ signature)>


The origin and the key's name are both the log's name. Doesn't know where notes are stored.

Incarnations of a log, and the origins of their checkpoints.

A log that is behind a checkpoint of its own must not be signed under the same origin again: a
signed size can't be taken back. If an operator accepts the loss, the log goes on as its next
incarnation, whose checkpoints have an origin of their own. Doesn't know when that is needed.
"""

from collections.abc import Collection
from typing import NamedTuple

from policies.ground.canonical import b64, encode, unb64
from policies.ground.signing import Signer
from policies.trail.proofs import signed_note
from policies.trail.proofs.nodes import HASH, MAX_SIZE
from policies.trail.proofs.signed_note import ED25519, BadNote, Note, VerifierKey, key_id
from policies.trail.record import Record, make_record

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


_MARK = "#"


def origin_of(log: str, number: int) -> str:
    """Return the origin of the checkpoints of a log's incarnation `number`, 0 for the first."""
    return f"{log}{_MARK}{number}" if number else log


def split_origin(origin: str) -> tuple[str, int]:
    """Return the log and the number of the incarnation that an origin names. An origin of another
    form is the first incarnation of a log with that name."""
    log, mark, digits = origin.rpartition(_MARK)
    # A leading zero would be a second spelling of the same origin.
    if mark and digits.isascii() and digits.isdigit() and digits[0] != "0" and len(digits) < 10:
        return log, int(digits)
    return origin, 0


def is_origin_of(origin: str, log: str) -> bool:
    """Return whether checkpoints with this origin are of the log, in any of its incarnations."""
    return split_origin(origin)[0] == log


def accepted_incarnation_record(
    log: str, number: int, cited: str | None, reason: str, *, record_id: str
) -> Record:
    """Return the `incarnation` entry of an operator's decision to go on with a log that is behind
    its checkpoints. `cited` is the last note of the origin before; `reason` the operator's
    words."""
    pub = {
        "cited": cited,
        "number": number,
        "origin": origin_of(log, number),
        "reason": reason,
    }
    return make_record("incarnation", record_id, encode(pub))
