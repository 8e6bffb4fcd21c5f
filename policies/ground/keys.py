"""The format of an API key, and the digest that is stored in its place. Knows nothing of who holds
a key.

`slc_`, 256 random bits in base 62 (43 characters), and the CRC-32 of those 47 characters in base 62
(6 characters). The checksum tells a mistyped key from a revoked one, and lets scanners for leaked
secrets recognise our keys with certainty (`CONTRACT.md`, Keys).
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from zlib import crc32

from policies.ground.errors import Unauthorized
from policies.ground.ids import base62

_FORM = re.compile(r"slc_[0-9A-Za-z]{49}\Z")
_SEVERAL = "several keys"
"""The value taken for a header that is repeated. It equals no key: ours begin with `slc_`, and the
superadmin's has at least 32 characters."""


class KeysDiffer(Unauthorized):
    """the headers `X-API-Key` and `Authorization` present different keys; send one of them"""


def presented_key(api_keys: Sequence[str], authorizations: Sequence[str]) -> str | None:
    """Return the API key of a request, from all values of its headers `X-API-Key` and
    `Authorization` (`CONTRACT.md`, Authentication); None if there is no key. Raises `KeysDiffer` if
    the two headers disagree.

    A repeated header never yields a valid key: a proxy in front of us may have checked the other
    value.
    """
    if not authorizations:
        return _single(api_keys)
    bearers = [token for each in authorizations if (token := _bearer(each)) is not None]
    if not bearers:
        return _single(api_keys)  # another scheme, such as Basic, is not meant for us
    bearer = bearers[0] if len(authorizations) == 1 else _SEVERAL
    key = _single(api_keys)
    # Compare digests: `compare_digest` takes constant time only for texts of equal length.
    if key is not None and not hmac.compare_digest(key_digest(key), key_digest(bearer)):
        raise KeysDiffer
    return bearer


def _single(values: Sequence[str]) -> str | None:
    if not values:
        return None
    return values[0] if len(values) == 1 else _SEVERAL


def _bearer(authorization: str) -> str | None:
    """Return the token of an `Authorization` header with the scheme `Bearer`, in any case (RFC
    9110, section 11.1); None for other schemes."""
    scheme, _, token = authorization.partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def make_key(entropy: bytes) -> str:
    """Return a new API key, made of 32 random bytes."""
    body = "slc_" + base62(int.from_bytes(entropy[:32], "big"), 43)
    return body + base62(crc32(body.encode("ascii")), 6)


def well_formed(key: str) -> bool:
    """Return whether `key` has the format and the checksum of an API key. It may still be unknown
    or revoked."""
    return bool(_FORM.match(key)) and base62(crc32(key[:47].encode("ascii")), 6) == key[47:]


def key_digest(key: str) -> bytes:
    """Return the SHA-256 of an API key, the only form in which a key is ever stored."""
    # A slow hash would protect a password that can be guessed; 256 random bits need none.
    # `surrogateescape` keeps keys distinct that contain bytes outside UTF-8, as a header may.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
