"""Names for request heads that were read before. A head holds credentials: what is kept of one for
the next request is found by a digest, and holds no byte of it that only its sender should know.

The digest is keyed with bytes that this process drew: without them, a guess at a password in a head
can't be tried against a digest that leaked.
"""

from hashlib import blake2b

KEY_BYTES = 32


class HeadDigest:
    """Digests under `key`, of `KEY_BYTES` random bytes."""

    def __init__(self, key: bytes) -> None:
        self._begun = blake2b(key=key, digest_size=32)

    def __call__(self, head: bytes) -> bytes:
        made = self._begun.copy()
        made.update(head)
        return made.digest()
