"""Random bytes, drawn from the system a block at a time. Knows nothing of what they are for.

Two system calls a decision cost more than the decision: each lets go of the interpreter's lock, and
waits for it again. The bytes are the system's own, each handed out once.
"""

from collections.abc import Callable

BLOCK = 8192


class RandomBuffer:
    """`draw(n)` is the system's source, `os.urandom`. Not for use by two threads, nor after a fork:
    both halves would hand out the same bytes."""

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        self._draw = draw
        self._block = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        """So many bytes that nobody else gets."""
        start, end = self._at, self._at + count
        if end > len(self._block):
            self._block = self._draw(max(BLOCK, count))
            start, end = 0, count
        self._at = end
        return self._block[start:end]
