"""Cosignatures of witnesses (C2SP `tlog-cosignature`, `cosignature/v1`): a witness states that at
some time, the checkpoint was the largest it knew of the log, and consistent with those before.

A line of a signed note; the signature is an 8-byte time and an Ed25519 signature over that time and
the note's text. Knows the bytes. Doesn't know consistency: a witness checks it before it signs.
"""

from collections.abc import Collection
from typing import NamedTuple

from policies.ground.signing import Signer, verify
from policies.trail.proofs.signed_note import (
    COSIGNATURE,
    BadNote,
    Note,
    Signature,
    VerifierKey,
    key_id,
    matches,
)

MAX_TIME = 2**63 - 1
_TIME = 8
_SIGNATURE = 64


class Cosignature(NamedTuple):
    """A cosignature that verified: the witness's key, and when it signed, in seconds since 1970
    UTC."""

    key: VerifierKey
    signed_at: int


def message(text: str, signed_at: int) -> bytes:
    """The bytes that a witness signs for a note's text."""
    return f"cosignature/v1\ntime {signed_at}\n{text}".encode()


def cosign(text: str, name: str, signer: Signer, signed_at: int) -> Signature:
    """The line that the witness `name` adds to a note. `signed_at` is in seconds since 1970 UTC.
    Raises `ValueError` for a time that the format doesn't have."""
    if not 0 <= signed_at <= MAX_TIME:
        raise ValueError(f"{signed_at} is not a time of a cosignature")
    signature = signed_at.to_bytes(_TIME, "big") + signer.sign(message(text, signed_at))
    return Signature(name, key_id(name, signer.public, COSIGNATURE), signature)


def verified(note: Note, keys: Collection[VerifierKey]) -> list[Cosignature]:
    """The cosignatures by `keys`, the latest of each key, in the order of `keys`. Those of other
    keys are ignored. Raises `BadNote` if one of these keys has a cosignature that is wrong."""
    latest: dict[VerifierKey, int] = {}
    for signature, key in matches(note, keys, COSIGNATURE):
        signed_at = _signed_at(note.text, signature, key)
        latest[key] = max(signed_at, latest.get(key, 0))
    return [Cosignature(key, latest[key]) for key in dict.fromkeys(keys) if key in latest]


def _signed_at(text: str, signature: Signature, key: VerifierKey) -> int:
    raw = signature.signature
    signed_at = int.from_bytes(raw[:_TIME], "big")
    if (
        len(raw) != _TIME + _SIGNATURE
        or signed_at > MAX_TIME
        or not verify(key.public, raw[_TIME:], message(text, signed_at))
    ):
        raise BadNote(f"the cosignature by `{key.name}` does not match the note's text")
    return signed_at
