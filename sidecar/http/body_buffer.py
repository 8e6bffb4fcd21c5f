"""Gathers a body that arrives in parts, and counts what that allocates. Knows no request.

A list of parts would cost more than its bytes: a part of two bytes takes fifty. A `bytearray`
allocates more than was asked for, and is copied at the end. `BytesIO` does neither if it grows by
more than an eighth each time: it then allocates exactly the size asked for, and `getvalue` hands
out its own buffer.
"""

from io import BytesIO

from sidecar.http.body_budget import Lease

_SMALLEST = 64 * 1024
"""Bytes; a shorter buffer isn't worth a smaller size."""


class BodyBuffer:
    """A body of at most `most` bytes, accounted for by `lease`."""

    __slots__ = ("_buffer", "_lease", "_most", "_size", "length")

    def __init__(self, most: int, lease: Lease) -> None:
        self._most = most
        self._lease = lease
        self._buffer = BytesIO()
        self._size = 0
        """Bytes allocated."""
        self.length = 0
        """Bytes appended."""

    def append(self, part: bytes) -> None:
        """Adds what has arrived; `length` may not exceed `most` by it. Raises
        `BodyBudgetExceeded`."""
        needed = self.length + len(part)
        if needed > self._size:
            self._allocate(needed)
        self._buffer.write(part)
        self.length = needed

    def take(self) -> bytes:
        """The body. Call it once, at the end: the buffer is empty afterwards, and the lease holds
        what is in the body."""
        self._buffer.truncate(self.length)
        whole = self._buffer.getvalue()
        self._buffer = BytesIO()
        self._lease.shrink(self._size - self.length)
        self._size = self.length = 0
        return whole

    def _allocate(self, needed: int) -> None:
        # Downwards from the largest size, so that the last one fits exactly.
        size = self._most
        while size > _SMALLEST and size * 4 // 5 >= needed:
            size = size * 4 // 5
        # Counted before it is allocated: the budget must hold at every moment.
        self._lease.grow(size - self._size)
        self._size = size
        self._buffer.seek(size - 1)
        self._buffer.write(b"\0")
        self._buffer.seek(self.length)
