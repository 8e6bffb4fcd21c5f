"""Random bytes, drawn from their source a block at a time.

Two system calls per decision would cost more than the decision itself: each releases the
interpreter's lock and waits to get it back. The bytes are the source's own, each handed out once.
Both services pass `os.urandom`; this module has no randomness of its own.
"""

from collections.abc import Callable

BLOCK = 8192


class RandomBuffer:
    """Draws blocks from `draw(n)` and hands out parts of them.

    Not thread-safe, and not safe across a fork: both processes would hand out the same bytes.
    """

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._block = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        """Return `count` bytes that no other call gets."""
        start, end = self._at, self._at + count
        if end > len(self._block):
            # What is left of the old block is dropped: joining would copy, and bytes are cheap.
            self._block = self._draw(max(BLOCK, count))
            start, end = 0, count
        self._at = end
        return self._block[start:end]
