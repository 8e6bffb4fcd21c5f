"""Remembers parsed request heads, since the same bytes always parse to the same head.

A client on a kept-alive connection sends the same head over and over, and parsing it costs more
than deciding the request. The cache keeps a head's digest and its parsed form, never its bytes:
they contain an API key.
"""

from typing import Any, NamedTuple

from sidecar.http.head_digest import HeadDigest

MAX_HEADS = 256
MAX_HEAD_BYTES = 2048


class CachedHead(NamedTuple):
    """A parsed head, and how many bytes of body follow it."""

    head: Any
    length: int


class HeadCache:
    """The heads that were added last, found by their `digest`."""

    def __init__(self, digest: HeadDigest) -> None:
        self._digest = digest
        self._heads: dict[bytes, CachedHead] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, head: bytes) -> CachedHead | None:
        return self._heads.get(self._digest(head))

    def add(self, head: bytes, parsed: CachedHead) -> None:
        if len(head) <= MAX_HEAD_BYTES:
            if len(self._heads) >= MAX_HEADS:
                # Dicts keep insertion order: the first key is the oldest.
                del self._heads[next(iter(self._heads))]
            self._heads[self._digest(head)] = parsed
