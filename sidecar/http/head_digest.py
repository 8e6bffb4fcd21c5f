"""Digests of request heads, as keys for caches. A head contains credentials, so a cache keeps its
digest instead of its bytes.

The digest is keyed with random bytes of this process. Without that key, an attacker who obtains a
digest can't test guesses at a credential against it.
"""

from hashlib import blake2b

KEY_BYTES = 32


class HeadDigest:
    """Keyed digests. `key` is `KEY_BYTES` random bytes."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=32)

    def __call__(self, head: bytes) -> bytes:
        digest = self._keyed.copy()  # keying anew for each head would cost more than hashing it
        digest.update(head)
        return digest.digest()
