"""Checkpoints of a log: its size and root hash at one time, signed (C2SP `tlog-checkpoint`).

    <origin>
    <size>
    <base64 root>

    — <name> <base64(key id ‖ signature)>

The origin and the key's name are both the log's name. Doesn't know where notes are stored.

Also the incarnations of a log, and the origins of their checkpoints. A signed size can't be taken
back. So a log that has become shorter than one of its own checkpoints must not be signed under the
same origin again. If an operator accepts the loss, the log goes on as its next incarnation, whose
checkpoints have an origin of their own. Doesn't know when that is needed.
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
    """A log's state that a signature can vouch for: the log `origin` at `size` entries, with the
    root hash of its Merkle tree at that size (32 bytes)."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return the text that is signed: origin, size and base64 root, a line each."""
        return f"{self.origin}\n{self.size}\n{b64(self.root)}\n"


def sign(checkpoint: Checkpoint, signer: Signer) -> str:
    """Return the checkpoint as a signed note, with one signature by `signer`."""
    text = checkpoint.text()
    return Note(text, (signed_note.sign(text, checkpoint.origin, signer),)).render()


def unverified(note: str) -> Checkpoint:
    """Return the checkpoint in a note without verifying any signature. Raises `BadNote` if it can't
    be read."""
    return parse(signed_note.parse(note).text)


def read(note: str, origin: str, publics: Collection[bytes]) -> Checkpoint:
    """Return the checkpoint in a note, verified. Raises `BadNote` unless the note is of the log
    `origin`, is written exactly as `sign` writes it, and is signed by one of the keys in `publics`.
    Signatures by other keys are ignored, so that witnesses may cosign."""
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
    """Parse the text of a note as a checkpoint of any log. Lines after the first three are
    extensions of that log's own, and ignored. Raises `BadNote` if the text is not a
    `tlog-checkpoint`."""
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
    """Return the checkpoint origin of incarnation `number` of a log, which is 0 for the first."""
    return f"{log}{_MARK}{number}" if number else log


def split_origin(origin: str) -> tuple[str, int]:
    """Return the log and the number of the incarnation that an origin names: the reverse of
    `origin_of`. An origin of another form counts as the first incarnation of a log with that
    name."""
    log, mark, digits = origin.rpartition(_MARK)
    # A leading zero would be a second spelling of the same origin.
    if mark and digits.isascii() and digits.isdigit() and digits[0] != "0" and len(digits) < 10:
        return log, int(digits)
    return origin, 0


def is_origin_of(origin: str, log: str) -> bool:
    """Return whether an origin is that of the log, in any of its incarnations."""
    return split_origin(origin)[0] == log


def accepted_incarnation_record(
    log: str, number: int, cited: str | None, reason: str, *, record_id: str
) -> Record:
    """Return the record of an operator's decision to go on with a log that is behind its
    checkpoints, as incarnation `number`. `cited` is the last note of the previous origin; `reason`
    is the text that the operator gives."""
    pub = {
        "cited": cited,
        "number": number,
        "origin": origin_of(log, number),
        "reason": reason,
    }
    return make_record("incarnation", record_id, encode(pub))
