"""Reads a request's body within a limit of size and time, and limits the bytes of all bodies that a
sidecar holds at once, over all connections and ports.

A body that the sidecar reads stays in memory until its request is answered. Without a common limit,
agents that start many large bodies and finish none would fill the memory.

The bytes are collected in a `BytesIO`. A list of parts would cost more than the bytes themselves: a
part of two bytes takes fifty. A `bytearray` allocates more than was asked for, and is copied at the
end. `BytesIO` does neither if it grows by more than an eighth each time: it then allocates exactly
the size asked for, and `getvalue` hands out its own buffer.
"""

import asyncio
from io import BytesIO
from typing import Self

from policies.ground.errors import Malformed, SluiceError, TooLarge, Unavailable
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.request_parser import BrokenFraming

BODY_BUDGET_BYTES = 64 * 1024 * 1024
"""The most bytes of request bodies that a sidecar holds at once: sixteen bodies of the largest size
that is read."""

RETRY_AFTER_SECONDS = 1
"""The seconds that a client is asked to wait after its request was refused for lack of memory for
its body."""


class BodyBudgetExceeded(Unavailable):
    """too many request bodies are being read at the moment; nothing was decided"""

    retry_after = RETRY_AFTER_SECONDS


class BodyBudget:
    """The limit of `limit` bytes on all bodies that are held at once. Each body holds its bytes
    through a `Lease`."""

    def __init__(self, limit: int = BODY_BUDGET_BYTES) -> None:
        self.limit = limit
        self.held = 0
        """The number of bytes that all leases hold now."""
        self.refused = 0
        """The number of times so far that a lease could not grow."""

    def lease(self) -> "Lease":
        """Return a lease for one body. Used in a `with` statement, it is released at the end of the
        block."""
        return Lease(self)


class Lease:
    """The bytes of a `BodyBudget` that one body holds."""

    __slots__ = ("_budget", "_count")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def release(self) -> None:
        self._budget.held -= self._count
        self._count = 0

    def grow(self, count: int) -> None:
        """Hold `count` more bytes. Raises `BodyBudgetExceeded`, and holds none of them, if that
        would exceed the budget."""
        budget = self._budget
        if budget.held + count > budget.limit:
            budget.refused += 1
            raise BodyBudgetExceeded
        budget.held += count
        self._count += count

    def shrink(self, count: int) -> None:
        """Give back `count` of the bytes held."""
        self._budget.held -= count
        self._count -= count


_SMALLEST = 64 * 1024
"""The size in bytes below which a buffer isn't made smaller: it would save too little."""


class BodyBuffer:
    """Collects a body of at most `most` bytes as it arrives. The memory that it allocates is held
    by `lease`."""

    __slots__ = ("_buffer", "_lease", "_most", "_size", "length")

    def __init__(self, most: int, lease: Lease) -> None:
        self._most = most
        self._lease = lease
        self._buffer = BytesIO()
        self._size = 0
        """The number of bytes allocated."""
        self.length = 0
        """The number of bytes appended."""

    def append(self, part: bytes) -> None:
        """Add bytes that have arrived; `length` must not exceed `most` afterwards. Raises
        `BodyBudgetExceeded`."""
        needed = self.length + len(part)
        if needed > self._size:
            self._allocate(needed)
        self._buffer.write(part)
        self.length = needed

    def take(self) -> bytes:
        """Return the whole body. Call it once, at the end: the buffer is empty afterwards, and the
        lease holds exactly the bytes of the body."""
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


MAX_BODY = 1024 * 1024
"""The largest request body that the sidecar's own API and the check doors accept, in bytes
(`CONTRACT.md`, Requests)."""

BODY_SECONDS = 10.0


class BodyTooSlow(SluiceError):
    """the body did not arrive in time"""

    status = 408


def take_whole(body: BodyStream, stated: int, limit: int, lease: Lease) -> bytes | None:
    """Return the body if all of it has already arrived, as nearly all bodies do with their head;
    otherwise None. `stated` is its `Content-Length`, 0 if unknown. Raises `TooLarge` beyond `limit`
    bytes, and `BodyBudgetExceeded` if `lease` can't grow that far."""
    # Refused by the stated length, before a byte of it is read.
    if stated > limit or body.total_bytes > limit:
        raise TooLarge(f"the body is larger than {limit} bytes")
    if not body.complete:
        return None
    lease.grow(body.total_bytes)
    return body.take()


async def read_whole(
    body: BodyStream, stated: int, limit: int, seconds: float, lease: Lease
) -> bytes:
    """Read the body to its end and return it. Takes and raises what `take_whole` does.

    Also raises `Malformed` if the framing breaks, `BodyTooSlow` after `seconds`, and
    `ConnectionError` if the client hangs up.
    """
    whole = take_whole(body, stated, limit, lease)
    if whole is not None:
        return whole
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    buffer = BodyBuffer(stated or limit, lease)
    try:
        while part := await body.next(max(0.0, end - loop.time())):
            if buffer.length + len(part) > limit:
                raise TooLarge(f"the body is larger than {limit} bytes")
            buffer.append(part)
            part = b""  # not held while the next is waited for
        return buffer.take()
    except TimeoutError:
        raise BodyTooSlow(f"the body did not arrive within {seconds:g} s") from None
    except BrokenFraming as error:
        raise Malformed("the body ended early, or its framing is broken") from error
