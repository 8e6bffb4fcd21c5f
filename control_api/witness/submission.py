"""The body of `add-checkpoint` (C2SP `tlog-witness`): the old size, a consistency proof, a note.

    old <size>\\n<base64 hash>\\n…\\n<the checkpoint, a signed note>

Pure. Knows the form; verifies neither signature nor proof.
"""

from typing import NamedTuple

from policies.ground.canonical import b64, unb64
from policies.ground.errors import Malformed
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.proofs import signed_note
from policies.trail.proofs.signed_note import Note
from policies.trail.proofs.subtree import HASH, MAX_SIZE

MAX_PROOF = 63
"""Lines of a consistency proof, by the protocol."""
MAX_BODY = 64 * 1024
"""Bytes of a body: 63 proof lines have 3 KB, and ten signatures of the largest kind 40."""
_MAX_DIGITS = 19


class Submission(NamedTuple):
    """A log's claim: `checkpoint`, which the note states, continues the tree of size `old`."""

    old: int
    proof: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint

    @classmethod
    def parse(cls, body: bytes) -> "Submission":
        """Raises `Malformed` unless `body` is in the form of the protocol."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Malformed("the body is not UTF-8") from None
        # Neither the first line nor a proof line can be empty, so the first empty line ends them.
        head, apart, rest = text.partition("\n\n")
        first, *lines = head.split("\n")
        if not apart or len(lines) > MAX_PROOF:
            raise Malformed(
                f"expected `old <size>`, at most {MAX_PROOF} proof lines, an empty line and a note"
            )
        old, proof = _old(first), tuple(map(_hash, lines))
        try:
            note = signed_note.parse(rest)
            claimed = checkpoint.parse(note.text)
        except BadNote as error:
            raise Malformed(f"the checkpoint can't be read: {error}") from error
        if old > claimed.size:
            raise Malformed(f"the old size, {old}, is larger than the checkpoint's, {claimed.size}")
        return cls(old, proof, note, claimed)

    def encode(self) -> bytes:
        """The body. The inverse of `parse`."""
        lines = [f"old {self.old}", *map(b64, self.proof), "", self.note.render()]
        return "\n".join(lines).encode()


def read_size(text: str) -> int | None:
    """A size in the one spelling that it may have: ASCII digits without a leading zero, up to
    2**63 - 1. None for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    size = int(text)
    return size if str(size) == text and size <= MAX_SIZE else None


def _old(line: str) -> int:
    word, _, digits = line.partition(" ")
    size = read_size(digits)
    if word != "old" or size is None:
        raise Malformed("the first line must be `old <size>`, the size in decimal")
    return size


def _hash(line: str) -> bytes:
    try:
        hash_ = unb64(line)
    except ValueError:
        hash_ = b""
    if len(hash_) != HASH:
        raise Malformed("a proof line is not the base64 of a hash")
    return hash_
