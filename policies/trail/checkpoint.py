"""Checkpoints of a log: its size and root at one time, signed (C2SP `tlog-checkpoint`).

    <origin>\\n<size>\\n<base64 root>\\n\\n— <name> <base64(key id ‖ signature)>\\n

The origin and the key's name are both the log's name. Knows the note and its signature. Doesn't
know where notes are stored.
"""

import hashlib
from collections.abc import Collection
from typing import NamedTuple

from policies.ground.canonical import NotCanonical, b64, unb64
from policies.ground.signing import Signer, verify

_ED25519 = b"\x01"  # the signature type of C2SP `signed-note`
_ROOT, _KEY_ID, _SIGNATURE = 32, 4, 64


class BadNote(ValueError):
    """the note is not a checkpoint of this log, or is not signed by the log's key"""


class Checkpoint(NamedTuple):
    """The log `origin` at `size` entries, with the root of its tree at that size (32 bytes)."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """The signed text."""
        return f"{self.origin}\n{self.size}\n{b64(self.root)}\n"


def key_id(name: str, public: bytes) -> bytes:
    """The 4 bytes that identify the key of a signature (C2SP `signed-note`, for Ed25519)."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:_KEY_ID]


def sign(checkpoint: Checkpoint, signer: Signer) -> str:
    """The signed note."""
    text, name = checkpoint.text(), checkpoint.origin
    signature = key_id(name, signer.public) + signer.sign(text.encode())
    return f"{text}\n— {name} {b64(signature)}\n"


def read(note: str, origin: str, publics: Collection[bytes]) -> Checkpoint:
    """The note's checkpoint of the log `origin`. Raises `BadNote` unless the note is written
    exactly as `sign` writes it and is signed by one of the keys in `publics`. Signatures by others
    are ignored, so that witnesses may cosign."""
    text, apart, signatures = note.rpartition("\n\n")
    checkpoint = _checkpoint(text + "\n")
    if not apart or checkpoint.origin != origin:
        raise BadNote(f"the note is not a checkpoint of log `{origin}`")
    for line in signatures.splitlines():
        mark, _, rest = line.partition(" ")
        name, _, encoded = rest.partition(" ")
        if (mark, name) == ("—", origin) and any(
            _signed(encoded, name, public, checkpoint) for public in publics
        ):
            return checkpoint
    raise BadNote(f"the note on log `{origin}` is not signed by the log's key")


def _checkpoint(text: str) -> Checkpoint:
    # A signature covers the exact text, so any other spelling would be another checkpoint.
    lines = text.split("\n")
    try:
        origin, size, root = lines[:3]
        checkpoint = Checkpoint(origin, int(size), unb64(root))
    except ValueError as error:
        raise BadNote("the note can't be read") from error
    # Re-encoding must give the same text. That rules out other spellings of the size, such as `+5`
    # or `05`, and extension lines.
    if checkpoint.text() != text or len(checkpoint.root) != _ROOT or checkpoint.size < 0:
        raise BadNote("the note is not in the form of a checkpoint")
    return checkpoint


def _signed(encoded: str, name: str, public: bytes, checkpoint: Checkpoint) -> bool:
    try:
        raw = unb64(encoded)
    except NotCanonical:
        return False
    # The key id only says which key to try; the signature is what counts.
    if len(raw) != _KEY_ID + _SIGNATURE or raw[:_KEY_ID] != key_id(name, public):
        return False
    return verify(public, raw[_KEY_ID:], checkpoint.text().encode())
