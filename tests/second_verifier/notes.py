"""Checkpoints: C2SP `tlog-checkpoint` as a `signed-note`, cosignatures, and keys that endorse their
successors. Knows the public formats, and nothing of entries."""

from __future__ import annotations

import binascii
import contextlib
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.second_verifier import encoding

ED25519, COSIGNATURE = 1, 4
MOST_SIGNATURES, LARGEST_NOTE = 100, 256 * 1024
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
LARGEST_SIZE = 2**63 - 1


class BadNote(ValueError):
    """The text is no checkpoint."""


class WrongSignature(ValueError):
    """A signature that names a known key is not by that key."""


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
        """Whether this Ed25519 key signed it, under the origin's name. Raises `WrongSignature` if
        one that should be by this key is not."""
        found = self._by(self.origin, key_id_of(self.origin, ED25519, public))
        if not all(_verifies(public, each, self.signed.encode()) for each in found):
            raise WrongSignature(f"a signature by `{self.origin}`")
        return bool(found)

    def cosigned_by(self, witness: Key) -> bool:
        """Whether the witness has cosigned it (C2SP `tlog-cosignature`, version 1). Raises
        `WrongSignature` like `signed_by`."""
        found = self._by(witness.name, witness.key_id)
        for value in found:
            seconds = int.from_bytes(value[:8], "big")
            text = f"cosignature/v1\ntime {seconds}\n{self.signed}".encode()
            if len(value) != 72 or seconds > LARGEST_SIZE:
                raise WrongSignature(f"a cosignature by `{witness.name}`")
            if not _verifies(witness.public, value[8:], text):
                raise WrongSignature(f"a cosignature by `{witness.name}`")
        return bool(found)

    def _by(self, name: str, key_id: bytes) -> list[bytes]:
        each = self.signatures
        return [value[4:] for by, value in each if by == name and value[:4] == key_id]


def read_key(text: str) -> Key:
    """Reads a verifier key. Raises `ValueError`."""
    name, key_id, rest = text.split("+", 2)
    blob = base64_of(rest)
    if blob is None or len(blob) != 33 or blob[0] not in (ED25519, COSIGNATURE):
        raise ValueError(f"`{text}` is no Ed25519 key")
    key = Key(name, key_id_of(name, blob[0], blob[1:]), blob[0], blob[1:])
    if key.key_id.hex() != key_id:
        raise ValueError(f"`{text}` has another key id")
    return key


def key_id_of(name: str, algorithm: int, public: bytes) -> bytes:
    """C2SP `signed-note`: four bytes of the hash of name, line feed, algorithm and public key."""
    return sha256(name.encode() + b"\n" + bytes([algorithm]) + public).digest()[:4]


def read_note(text: str) -> Note:
    """Reads a checkpoint. Raises `BadNote`."""
    body, mark, below = text.rpartition("\n\n")
    if not mark or not below.endswith("\n") or below.count("\n") > MOST_SIGNATURES:
        raise BadNote("no signatures, or too many")
    if len(text.encode()) > LARGEST_NOTE or _CONTROL.search(text):
        raise BadNote("too long, or a control character")
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
    raw = base64_of(text)
    return raw if raw is not None and len(raw) == 32 else None


def base64_of(text: Any) -> bytes | None:
    """The bytes of base64 with padding, in their one spelling; None if it isn't that."""
    try:
        raw = b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return None
    return raw if binascii.b2a_base64(raw, newline=False).decode() == text else None


def _signature(line: str) -> tuple[str, bytes]:
    words = line.split(" ")
    if len(words) != 3 or words[0] != "\u2014" or not words[1]:
        raise BadNote("a signature's line")
    if any(each == "+" or each.isspace() for each in words[1]):
        raise BadNote("a name that no key has")
    value = base64_of(words[2])
    if value is None or len(value) < 5:
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
        return TrustedKeys(frozenset(_readable(claimed)), frozenset())
    steps = [pair for each in claimed if (pair := _endorsed(each.get("endorsement")))]
    current, former = set(pinned), set(pinned)
    for by, to in steps:
        current |= {to} if by in current else set()
    for by, to in reversed(steps):
        former |= {by} if to in former else set()
    return TrustedKeys(frozenset(current), frozenset(former - current))


def _readable(claimed: Sequence[Any]) -> Iterator[bytes]:
    """The public keys of claims. One that can't be read leads to no key."""
    for each in claimed:
        with contextlib.suppress(ValueError):
            yield read_key(each["key"]).public


def _endorsed(endorsement: dict[str, str] | None) -> tuple[bytes, bytes] | None:
    """Both keys of an endorsement that holds, the endorsing one first."""
    if endorsement is None:
        return None
    by, to, signature = (base64_of(endorsement.get(name)) for name in ("from", "to", "signature"))
    if by is None or to is None or signature is None or len(by) != 32:
        return None
    statement = {name: endorsement[name] for name in ("from", "to")}
    message = b"sluice/key-rotation/v1\0" + encoding.write(statement)
    return (by, to) if _verifies(by, signature, message) else None


def is_origin(origin: str, log: str) -> bool:
    """Whether checkpoints of the log may have this origin, in any of its incarnations."""
    return origin == log or bool(re.fullmatch(re.escape(log) + "#[1-9][0-9]{0,8}", origin))
