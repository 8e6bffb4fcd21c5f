"""Commits to personal data, so that the log can prove it without holding it.

A commitment is a salted hash, and reveals nothing by itself. The entry carries it. Its opening,
which is the salt and the value, lies in a table whose rows may be deleted. Erasing a person deletes
the openings, and every hash of the log still verifies (`FORMAT.md`, Commitments).
"""

import hashlib
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from policies.ground.canonical import b64, encode, unb64

_sha256 = hashlib.sha256
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_INNER_REST = b"\x36" * 32
_OUTER_REST = b"\x5c" * 32


def _hmac(key: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA256 (RFC 2104) with a 32-byte key. `message` must begin with
    `_INNER_REST`."""
    # Takes half the time of `hmac.digest` on short messages; a decision calls it up to four times.
    # The key fills half of a 64-byte block; `_INNER_REST`, the padding of the other half, is
    # part of the constant that each message begins with. A test compares this with `hmac`.
    inner = _sha256(key.translate(_INNER) + message).digest()
    return _sha256(key.translate(_OUTER) + _OUTER_REST + inner).digest()


class _Labels(NamedTuple):
    """The constant bytes that a path contributes: the start of the message from which its salt is
    derived, the start of the commitment's message, and the member's name in the entry."""

    salt: bytes
    field: bytes
    member: bytes


@lru_cache(maxsize=64)
def _labels(path: str) -> _Labels:
    name = path.encode()
    # The length in front of the path keeps one pair of path and value from reading as another.
    return _Labels(
        b"%baudit/field-salt/v1\0%b" % (_INNER_REST, name),
        b"%baudit/field/v1\0%b%b" % (_INNER_REST, len(name).to_bytes(4, "big"), name),
        b'"%b":' % name,
    )


def field_salt(record_salt: bytes, path: str) -> bytes:
    """Return the salt of the field at `path`, derived from the record's 32 random bytes. Each field
    has a salt of its own, so that one opening can be handed out without the others."""
    return _hmac(record_salt, _labels(path).salt)


def commitment(salt: bytes, path: str, encoded: bytes) -> bytes:
    """Return the 32-byte commitment to a value, which the entry carries under `cm[path]`. `encoded`
    is the value in canonical bytes."""
    return _hmac(salt, _labels(path).field + len(encoded).to_bytes(4, "big") + encoded)


def commitments(path: str, salts: bytes, stride: int, values: Sequence[bytes]) -> list[bytes]:
    """Return the `commitment` to each of many values under one path. Inlines the HMAC rather than
    call a function for each: a verification of millions of entries spends much of its time here.
    `salts` holds a salt of 32 bytes at every `stride` bytes."""
    begins = {size: _begin(path, size) for size in set(map(len, values))}
    inner, outer = salts.translate(_INNER), salts.translate(_OUTER)
    return [
        _sha256(
            b"%b%b%b"
            % (
                outer[at : at + 32],
                _OUTER_REST,
                _sha256(b"%b%b%b" % (inner[at : at + 32], begins[len(value)], value)).digest(),
            )
        ).digest()
        for at, value in zip(range(0, len(salts), stride), values, strict=True)
    ]


def _begin(path: str, size: int) -> bytes:
    """Return the first bytes of a commitment's message, for a value of `size` bytes."""
    return _labels(path).field + size.to_bytes(4, "big")


def commit(record_salt: bytes, fields: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Commit to the texts in `fields`, keyed by path. Return the canonical bytes of the entry's
    `cm`, and those of the openings `{path: [salt, value]}`."""
    # Join by hand: paths consist of the encoding's key characters, and neither they nor base64
    # need escaping. Sorted by path, as the encoding sorts its keys.
    commitments, openings = [], []
    for path in sorted(fields):
        label_salt, label_field, member = _labels(path)
        value = encode(fields[path])
        salt = _hmac(record_salt, label_salt)
        committed = _hmac(salt, label_field + len(value).to_bytes(4, "big") + value)
        commitments.append(b'%b"%b"' % (member, b2a_base64(committed, newline=False)))
        openings.append(b'%b["%b",%b]' % (member, b2a_base64(salt, newline=False), value))
    return b"{%b}" % b",".join(commitments), b"{%b}" % b",".join(openings)


def opening_matches(commitments: Mapping[str, str], path: str, opening: object) -> bool:
    """Return whether `opening` is a pair `[salt, value]` that matches `commitments[path]`."""
    if not (isinstance(opening, list) and len(opening) == 2):
        return False
    salt, value = opening
    if not isinstance(salt, str):
        return False
    try:
        raw = unb64(salt)
        # HMAC accepts a salt of any length, and our `_hmac` differs from it for all but 32 bytes:
        # independent verifiers would disagree with this one.
        if len(raw) != 32:
            return False
        return b64(commitment(raw, path, encode(value))) == commitments.get(path)
    except (ValueError, TypeError):  # a salt that is not base64, or a value outside the encoding
        return False
