"""Limits what all connections of a process may take before anything is known of their requests: how
many connections there are, and how many bytes of unfinished request heads they hold.

A client needs no key to open a connection and to begin a request. Without a common limit, it could
fill the memory with heads that it never finishes. Only counts; knows no connection and no request.
"""

from collections.abc import Callable

HEAD_BYTES = 64 * 1024
"""The most bytes that a request head may have, from its first byte to the empty line."""

ALL_HEADS_BYTES = 16 * 1024 * 1024
"""The most bytes of unfinished request heads that all connections of a process hold together."""

DEFAULT_CONNECTIONS = 10_000
"""The most connections that a process of the control API accepts, unless its settings say
otherwise."""

HEADS_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Retry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
"""The response to a request whose head would exceed `ALL_HEADS_BYTES`. Nothing of the request was
read, so nothing was decided."""


HEAD_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
"""The response to a request whose head is longer than `HEAD_BYTES`, unless the server makes one of
its own."""


class ConnectionBudget:
    """The counts of a process's connections and unfinished heads, with their limits: at most `most`
    connections, which hold at most `head_limit` bytes of unfinished heads."""

    __slots__ = ("cut_off", "head_bytes", "head_limit", "heads_refused", "most", "open", "refused")

    def __init__(self, most: int, head_limit: int = ALL_HEADS_BYTES) -> None:
        self.most = most
        self.head_limit = head_limit
        self.open = 0
        """The number of connections that are open now."""
        self.refused = 0
        """The number of connections refused so far."""
        self.head_bytes = 0
        """The bytes of unfinished heads that all connections hold now."""
        self.heads_refused = 0
        """The number of unfinished heads refused so far."""
        self.cut_off: dict[str, int] = {}
        """The number of connections ended so far because their client broke a protocol or its
        limits, by the cause, of a closed set."""

    def count_cut_off(self, cause: str) -> None:
        self.cut_off[cause] = self.cut_off.get(cause, 0) + 1

    def slot(self) -> "Slot":
        """Return a place for one connection. It counts only once `Slot.take` is called."""
        return Slot(self)

    def head(self) -> "HeldHead":
        """Return a counter for the unfinished request heads of one connection. It begins at zero
        bytes."""
        return HeldHead(self)


class Slot:
    """One connection's place among those that may be open at once."""

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: ConnectionBudget) -> None:
        self._budget = budget
        self._taken = False

    def take(self, _abort: Callable[[], None]) -> bool:
        """Take the place, when the connection is made. Return False if all places are taken; then
        the caller must end the connection at once. `_abort` ends the connection: a subclass may use
        it to free the place for another."""
        budget = self._budget
        if budget.open >= budget.most:
            budget.refused += 1
            return False
        budget.open += 1
        self._taken = True
        return True

    def leave(self) -> None:
        """Free the place, when the connection is lost. Does nothing if it was not taken."""
        if self._taken:
            self._taken = False
            self._budget.open -= 1


class HeldHead:
    """The number of bytes of an unfinished request head that one connection holds."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ConnectionBudget) -> None:
        self._budget = budget
        self.size = 0

    def resize(self, size: int) -> bool:
        """Set the number of bytes that the connection holds to `size`. Return False, and hold none,
        if all heads together would exceed the limit."""
        budget = self._budget
        if size > self.size and budget.head_bytes - self.size + size > budget.head_limit:
            budget.heads_refused += 1
            self.release()
            return False
        budget.head_bytes += size - self.size
        self.size = size
        return True

    def release(self) -> None:
        """Set the number of bytes to zero, when the head has ended or its connection has."""
        self._budget.head_bytes -= self.size
        self.size = 0
