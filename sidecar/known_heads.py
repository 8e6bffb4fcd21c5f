"""Heads of requests that were read before: the same bytes say the same again.

A client on a kept connection sends the same head over and over, and reading it costs more than
deciding what it asks for. What is kept of one is its SHA-256 and what it said, never its bytes:
an API key is among them.
"""

import hashlib
from typing import Any, NamedTuple

KEPT = 256
LONGEST = 2048

_sha256 = hashlib.sha256


class Known(NamedTuple):
    """What a head said, and how many bytes of body follow it."""

    head: Any
    length: int


class KnownHeads:
    """The heads that were learnt last."""

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    def find(self, head: bytes) -> Known | None:
        return self._known.get(_sha256(head).digest())

    def learn(self, head: bytes, known: Known) -> None:
        if len(head) <= LONGEST:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            self._known[_sha256(head).digest()] = known
