"""Limits the request head that arrives on one connection, by its bytes alone. aiohttp limits each
line and the number of fields, but not what they come to.

Knows bytes. Knows no request and no key.
"""

from aiohttp import StreamReader

from policies.ground.connection_budget import (
    HEAD_BYTES,
    HEAD_TOO_LONG,
    HEADS_FULL,
    ConnectionBudget,
)

_END = b"\r\n\r\n"


class ArrivingHead:
    """The head under way on one connection, if there is one."""

    __slots__ = ("_body", "_ended", "_held", "_tail", "owed")

    def __init__(self, budget: ConnectionBudget) -> None:
        self._held = budget.head()
        self._tail = b""
        """The last bytes that arrived: the end of a head may be cut in two."""
        self._ended = False
        """Whether a head has ended, and its request is not served yet."""
        self._body: StreamReader | None = None
        """The body of the last request that is served."""
        self.owed = False
        """Whether a request waits for its response."""

    def arrived(self, data: bytes) -> bytes | None:
        """Notes what arrived. Returns the response that refuses it if it is more of a head than may
        be held."""
        if self._ended or not (self._body is None or self._body.is_eof()):
            return None
        joined = self._tail + data
        end = joined.find(_END)
        if end >= 0:
            size, self._ended, self._tail = self._held.size + end - len(self._tail), True, b""
            self.owed = self.owed or size <= HEAD_BYTES
            self._held.release()
            return None if size <= HEAD_BYTES else HEAD_TOO_LONG
        self._tail = joined[1 - len(_END) :]
        size = self._held.size + len(data)
        if size > HEAD_BYTES:
            return HEAD_TOO_LONG
        return None if self._held.resize(size) else HEADS_FULL

    def served(self, body: StreamReader) -> None:
        """Notes that the request whose head has ended is served. What follows its `body` is the
        next head."""
        self._ended, self._body, self._tail = False, body, b""
        self._held.release()

    def answered(self) -> None:
        """Notes that the request that is served has its response."""
        self.owed = self._ended

    def lost(self) -> None:
        """Notes that the connection is lost."""
        self._held.release()
