"""The form of an API key, and what is kept of it. Knows nothing of who holds one.

`slc_`, 256 random bits in base 62 (43 characters), and the CRC-32 of what precedes in base 62
(6 characters): a mistyped key is told from a revoked one, and a scanner of leaked secrets can
know one of ours for certain (contract, section 2).
"""

import hashlib
import re
from zlib import crc32

from policies.ground.ids import base62

_FORM = re.compile(r"slc_[0-9A-Za-z]{49}\Z")


def make_key(entropy: bytes) -> str:
    """A key of 32 random bytes."""
    body = "slc_" + base62(int.from_bytes(entropy[:32], "big"), 43)
    return body + base62(crc32(body.encode("ascii")), 6)


def well_formed(key: str) -> bool:
    """Whether `key` has the form and the checksum of one that we made."""
    return bool(_FORM.match(key)) and base62(crc32(key[:47].encode("ascii")), 6) == key[47:]


def key_digest(key: str) -> bytes:
    """SHA-256 of the key: all that is ever kept. 256 random bits need no slow hash. Characters
    outside UTF-8 (a header's stray bytes) are kept apart by `surrogateescape`."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
