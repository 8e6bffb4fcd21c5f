"""Remembers what heads mean: a client on a kept connection sends the same head over and over, and
the same bytes always mean the same.

A head holds credentials, so its digest is kept instead of its bytes, keyed with random bytes of
this process: an attacker who obtains a digest can't test guesses at a credential against it.
A head may be added only with a meaning that holds no credential.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

KEY_BYTES = 32
MAX_HEADS = 1024
"""About 1 KB each."""
LONGEST = 4096
"""The longest head that is remembered, in bytes."""


class KnownHead(NamedTuple):
    """A head that has been read: of an HTTP/1.1 request that keeps its connection, has a body of
    `length` bytes, and offers no other protocol. `meaning` is what its service made of it."""

    method: str
    target: tuple[int, int]
    """Where the target begins and ends in the head: its query may hold a credential."""
    length: int
    meaning: Any


class HeadCache:
    """The last heads of one service. `key` is `KEY_BYTES` random bytes."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=32)
        self._heads: dict[bytes, KnownHead] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, head: bytes) -> KnownHead | None:
        return self._heads.get(self._digest(head))

    def add(self, head: bytes, known: KnownHead) -> None:
        if len(head) > LONGEST:
            return
        if len(self._heads) >= MAX_HEADS:
            # Dicts keep insertion order: the first key is the oldest.
            del self._heads[next(iter(self._heads))]
        self._heads[self._digest(head)] = known

    def _digest(self, head: bytes) -> bytes:
        digest = self._keyed.copy()  # keying anew for each head would cost more than hashing it
        digest.update(head)
        return digest.digest()
