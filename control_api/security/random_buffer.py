"""Reads random bytes from the system a block at a time.

Two system calls per decision would cost more than the decision, since each releases the
interpreter's lock and waits to get it back. The bytes come straight from the system, and each is
handed out once.
"""

from collections.abc import Callable

BLOCK = 8192


class RandomBuffer:
    """`draw(n)` is the system's source, `os.urandom`. Not safe for use by two threads, or after a
    fork: both processes would hand out the same bytes."""

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._block = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        """`count` bytes that are never handed out again."""
        start, end = self._at, self._at + count
        if end > len(self._block):
            self._block = self._draw(max(BLOCK, count))
            start, end = 0, count
        self._at = end
        return self._block[start:end]
