"""Limits what all connections of a process may take before anything is known of their requests:
how many there are, and how many bytes of request heads without an end they hold.

A client needs no key to open a connection and to begin a request. Without a common limit, it could
fill the memory with heads that it never finishes. Counts; knows no connection and no request.
"""

from collections.abc import Callable

HEAD_BYTES = 64 * 1024
"""The longest request head, from its first byte to the empty line."""

ALL_HEADS_BYTES = 16 * 1024 * 1024
"""The most bytes of unfinished request heads that all connections of a process hold together."""

DEFAULT_CONNECTIONS = 10_000
"""The most connections to a control API's process, unless its settings say otherwise."""

HEADS_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Retry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
"""The response to a request whose head doesn't fit: nothing of it was read, so nothing was
decided."""


HEAD_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
"""The response to a request whose head is longer than `HEAD_BYTES`, where no other is made."""


class ConnectionBudget:
    """At most `most` connections, which hold at most `head_limit` bytes of unfinished heads."""

    __slots__ = ("head_bytes", "head_limit", "heads_refused", "most", "open", "refused")

    def __init__(self, most: int, head_limit: int = ALL_HEADS_BYTES) -> None:
        self.most = most
        self.head_limit = head_limit
        self.open = 0
        """Connections that are open now."""
        self.refused = 0
        """Connections refused so far."""
        self.head_bytes = 0
        """The bytes of unfinished heads held now."""
        self.heads_refused = 0
        """Unfinished heads refused so far."""

    def slot(self) -> "Slot":
        """Return a place for one connection, which it has yet to take."""
        return Slot(self)

    def head(self) -> "HeldHead":
        """Return a counter for the unfinished head on one connection; no head has begun yet."""
        return HeldHead(self)


class Slot:
    """The place of one connection among those that may be open."""

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: ConnectionBudget) -> None:
        self._budget = budget
        self._taken = False

    def take(self, _abort: Callable[[], None]) -> bool:
        """Take the place when the connection is made; `abort` ends the connection. Return False if
        there is no place: the connection must be ended at once."""
        budget = self._budget
        if budget.open >= budget.most:
            budget.refused += 1
            return False
        budget.open += 1
        self._taken = True
        return True

    def leave(self) -> None:
        """Free the place, if it was taken, when the connection is lost."""
        if self._taken:
            self._taken = False
            self._budget.open -= 1


class HeldHead:
    """The bytes of the unfinished head on one connection."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ConnectionBudget) -> None:
        self._budget = budget
        self.size = 0

    def resize(self, size: int) -> bool:
        """Hold `size` bytes instead of the bytes held before. Return False, and hold none, if all
        heads together would exceed the limit."""
        budget = self._budget
        if size > self.size and budget.head_bytes - self.size + size > budget.head_limit:
            budget.heads_refused += 1
            self.release()
            return False
        budget.head_bytes += size - self.size
        self.size = size
        return True

    def release(self) -> None:
        """Hold nothing more: the head has ended, or its connection has."""
        self._budget.head_bytes -= self.size
        self.size = 0
