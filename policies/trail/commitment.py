"""Commitments: a hash of what may be personal, that tells nothing and can be opened.

What may be personal is never hashed into the log in clear. The entry carries a commitment; salt and
value, its opening, lie in a table that may change. Erasing a person deletes openings, and every
hash still verifies (`audit-trail.md`, Hashes).
"""

import hashlib
from binascii import b2a_base64
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from policies.ground.canonical import b64, encode, unb64

_sha256 = hashlib.sha256
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_INNER_REST = b"\x36" * 32
_OUTER_REST = b"\x5c" * 32


def _hmac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 (RFC 2104) of a 32-byte key, and a message that `_INNER_REST` precedes.

    Half the time of `hmac.digest` on short messages, and it is called up to four times a decision.
    The key fills half a block; what fills the other half is part of the constant that every
    message begins with. A test holds this against `hmac`.
    """
    inner = _sha256(key.translate(_INNER) + message).digest()
    return _sha256(key.translate(_OUTER) + _OUTER_REST + inner).digest()


class _Labels(NamedTuple):
    """What of a path goes before a salt's hash, before a commitment's, and into the entry."""

    salt: bytes
    field: bytes
    member: bytes


@lru_cache(maxsize=64)
def _labels(path: str) -> _Labels:
    name = path.encode()
    return _Labels(
        b"%baudit/field-salt/v1\0%b" % (_INNER_REST, name),
        b"%baudit/field/v1\0%b%b" % (_INNER_REST, len(name).to_bytes(4, "big"), name),
        b'"%b":' % name,
    )


def field_salt(record_salt: bytes, path: str) -> bytes:
    """The salt of one field, of the record's 32 random bytes: one can be handed out without the
    others."""
    return _hmac(record_salt, _labels(path).salt)


def commitment(salt: bytes, path: str, encoded: bytes) -> bytes:
    """What the entry carries under `cm[path]`, in 32 bytes; `encoded` is the value's canonical
    bytes."""
    return _hmac(salt, _labels(path).field + len(encoded).to_bytes(4, "big") + encoded)


def commit(record_salt: bytes, fields: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Canonical bytes of `cm` and of the openings, `{path: [salt, value]}`.

    Joined by hand: paths are of the encoding's key characters and base64 needs no escaping.
    """
    commitments, openings = [], []
    for path in sorted(fields):
        label_salt, label_field, member = _labels(path)
        value = encode(fields[path])
        salt = _hmac(record_salt, label_salt)
        committed = _hmac(salt, label_field + len(value).to_bytes(4, "big") + value)
        commitments.append(b'%b"%b"' % (member, b2a_base64(committed, newline=False)))
        openings.append(b'%b["%b",%b]' % (member, b2a_base64(salt, newline=False), value))
    return b"{%b}" % b",".join(commitments), b"{%b}" % b",".join(openings)


def opens(commitments: Mapping[str, str], path: str, opening: object) -> bool:
    """Whether `[salt, value]` is the opening of `commitments[path]`."""
    if not (isinstance(opening, list) and len(opening) == 2):
        return False
    salt, value = opening
    if not isinstance(salt, str):
        return False
    try:
        raw = unb64(salt)
        # Of another length it would be no HMAC: a verifier that is not ours would disagree.
        if len(raw) != 32:
            return False
        return b64(commitment(raw, path, encode(value))) == commitments.get(path)
    except (ValueError, TypeError):  # no salt of ours, or a value outside the encoding
        return False
