"""Heads of requests that were read before: the same bytes say the same again.

A client on a kept connection sends the same head over and over, and reading it costs more than
deciding what it asks for. What is kept of one is its digest and what it said, never its bytes:
an API key is among them.
"""

from typing import Any, NamedTuple

from sidecar.http.head_digest import HeadDigest

KEPT = 256
LONGEST = 2048


class CachedHead(NamedTuple):
    """What a head said, and how many bytes of body follow it."""

    head: Any
    length: int


class HeadCache:
    """The heads that were learnt last, found by their `digest`."""

    def __init__(self, digest: HeadDigest) -> None:
        self._digest = digest
        self._known: dict[bytes, CachedHead] = {}

    def find(self, head: bytes) -> CachedHead | None:
        return self._known.get(self._digest(head))

    def learn(self, head: bytes, known: CachedHead) -> None:
        if len(head) <= LONGEST:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            self._known[self._digest(head)] = known
