"""Checkpoints: C2SP `tlog-checkpoint` as a `signed-note`, cosignatures, and keys that endorse their
successors. Knows the public formats, and nothing of entries."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.second_verifier import encoding

ED25519, COSIGNATURE = 1, 4
LARGEST_SIZE = 2**63 - 1


class BadNote(ValueError):
    """The text is no checkpoint."""


@dataclass(frozen=True, slots=True)
class Key:
    """A verifier key: `<name>+<key id>+<base64 of the algorithm's byte and the public key>`."""

    name: str
    key_id: bytes
    algorithm: int
    public: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """A checkpoint as it was read; `signed` is the text that signatures are over."""

    origin: str
    size: int
    root: bytes
    signed: str
    signatures: tuple[tuple[str, bytes], ...]

    def signed_by(self, public: bytes) -> bool:
        """Whether a signature under the origin's name verifies by this Ed25519 key."""
        key_id = key_id_of(self.origin, ED25519, public)
        return any(
            name == self.origin
            and value[:4] == key_id
            and _verifies(public, value[4:], self.signed.encode())
            for name, value in self.signatures
        )

    def cosigned_by(self, witness: Key) -> bool:
        """Whether the witness has cosigned it (C2SP `tlog-cosignature`, version 1)."""
        for name, value in self.signatures:
            if name == witness.name and value[:4] == witness.key_id and len(value) == 76:
                seconds = int.from_bytes(value[4:12], "big")
                text = f"cosignature/v1\ntime {seconds}\n{self.signed}"
                if _verifies(witness.public, value[12:], text.encode()):
                    return True
        return False


def read_key(text: str) -> Key:
    """Reads a verifier key. Raises `ValueError`."""
    name, key_id, rest = text.split("+", 2)
    blob = b64decode(rest, validate=True)
    algorithm, public = blob[0], blob[1:]
    key = Key(name, bytes.fromhex(key_id), algorithm, public)
    if len(public) != 32 or key.key_id != key_id_of(name, algorithm, public):
        raise ValueError(f"`{text}` has another key id")
    return key


def key_id_of(name: str, algorithm: int, public: bytes) -> bytes:
    """C2SP `signed-note`: four bytes of the hash of name, line feed, algorithm and public key."""
    return sha256(name.encode() + b"\n" + bytes([algorithm]) + public).digest()[:4]


def read_note(text: str) -> Note:
    """Reads a checkpoint. Raises `BadNote`."""
    body, mark, below = text.rpartition("\n\n")
    if not mark or not below.endswith("\n"):
        raise BadNote("no signatures")
    lines = body.split("\n")
    if len(lines) != 3 or not lines[0]:
        raise BadNote("a checkpoint has three lines")
    if not lines[1].isascii() or not lines[1].isdigit() or str(int(lines[1])) != lines[1]:
        raise BadNote(f"the size `{lines[1]}`")
    root = hash_of(lines[2])
    signatures = tuple(_signature(line) for line in below[:-1].split("\n"))
    if root is None or int(lines[1]) > LARGEST_SIZE:
        raise BadNote("the root or the size is out of range")
    return Note(lines[0], int(lines[1]), root, body + "\n", signatures)


def hash_of(text: Any) -> bytes | None:
    """The 32 bytes of a hash in base64 with padding; None if it isn't one."""
    try:
        raw = b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return None
    plain = binascii.b2a_base64(raw, newline=False).decode() == text
    return raw if len(raw) == 32 and plain else None


def _signature(line: str) -> tuple[str, bytes]:
    words = line.split(" ")
    if len(words) != 3 or words[0] != "\u2014" or not words[1]:
        raise BadNote("a signature's line")
    try:
        value = b64decode(words[2], validate=True)
    except ValueError as error:
        raise BadNote("a signature's base64") from error
    if len(value) < 5:
        raise BadNote("a signature is too short")
    return words[1], value


def _verifies(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The public keys whose signatures prove something, and those that they succeeded: what a
    former key signs is no fault, but proves nothing, since it can have been stolen since."""

    current: frozenset[bytes]
    former: frozenset[bytes]


def trusted_keys(pinned: Sequence[bytes], claimed: Sequence[Any]) -> TrustedKeys:
    """Follows the endorsements from the pinned keys in both directions. Without a pinned key, all
    that the file claims are taken, and prove nothing about who wrote it."""
    if not pinned:
        return TrustedKeys(frozenset(read_key(each["key"]).public for each in claimed), frozenset())
    steps = [pair for each in claimed if (pair := _endorsed(each.get("endorsement")))]
    current, former = set(pinned), set(pinned)
    for by, to in steps:
        current |= {to} if by in current else set()
    for by, to in reversed(steps):
        former |= {by} if to in former else set()
    return TrustedKeys(frozenset(current), frozenset(former - current))


def _endorsed(endorsement: dict[str, str] | None) -> tuple[bytes, bytes] | None:
    """Both keys of an endorsement that holds, the endorsing one first."""
    if endorsement is None:
        return None
    statement = {name: endorsement[name] for name in ("from", "to")}
    by, to = (b64decode(each) for each in statement.values())
    message = b"sluice/key-rotation/v1\0" + encoding.write(statement)
    return (by, to) if _verifies(by, b64decode(endorsement["signature"]), message) else None
