"""Random bytes of the system, drawn in advance: one call of the kernel for a hundred decisions."""

from collections.abc import Callable

_DRAWN = 4096


class RandomPool:
    """Gives every byte of `source` (`os.urandom`) once. For a process that does not fork, and its
    event loop's thread alone."""

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self._source = source
        self._drawn = b""
        self._at = 0

    def __call__(self, size: int) -> bytes:
        """`size` bytes, which nobody else gets."""
        at = self._at
        self._at = end = at + size
        if end <= len(self._drawn):
            return self._drawn[at:end]
        if size > _DRAWN:
            return self._source(size)
        self._drawn, self._at = self._source(_DRAWN), size
        return self._drawn[:size]
