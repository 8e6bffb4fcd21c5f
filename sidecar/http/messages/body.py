"""Holds the body of one message while it arrives: a connection appends to it, and one reader takes
the bytes from it. Also defines the errors for connections that end too early. Knows neither framing
nor what the bytes mean."""

import asyncio
from typing import Protocol

from sidecar.http.messages.chunks import Trailers
from sidecar.platform.waiters import time_out, wake

_SMALL_BYTES = 4096
"""The most bytes up to which parts that wait are joined. A peer may send a byte at a time, and each
part on its own would take fifty bytes more."""


class BodyBrokenOff(ConnectionError):
    """the connection was lost in the middle of a body"""


class BodyOmitted(ConnectionError):
    """a client of `Expect: 100-continue` was refused before its body, and may leave that out"""


class ConnectionLost(ConnectionError):
    """the server closed the connection, or it was broken off"""


class FlowControl(Protocol):
    """The methods by which a body tells its connection when to pause and resume reading."""

    def body_full(self) -> None:
        """Pause reading: too many bytes wait for a slow reader of the body."""

    def body_taken(self) -> None:
        """Resume reading: the reader has taken all bytes of the body that had arrived."""


class BodyReader(Protocol):
    """The methods by which a body is sent on as it arrives."""

    @property
    def trailers(self) -> Trailers | None:
        """The trailer fields, once the body is complete; None without any."""

    async def next(self, seconds: float) -> bytes:
        """Wait for bytes, and return them; empty at the end of the body. Raises `TimeoutError` if
        nothing arrives for `seconds`, and the reason if the rest of the body will never arrive."""

    def fail(self, error: BaseException) -> None:
        """Note that the rest of the body will never arrive."""

    def reject(self, error: BaseException) -> None:
        """Note that the body can't be used, even if all of it has arrived."""


class BodyStream:
    """The body of one message, written by a connection and read by one reader. `flow` is told to
    pause when more than `limit` bytes wait for the reader."""

    # Class attributes, so that making one costs little: most bodies are here already.
    full = False
    """True if more than `limit` bytes wait for the reader."""
    complete = False
    """True if the whole body has arrived."""
    failure: BaseException | None = None
    """The error because of which the rest of the body will never arrive; raised where the body is
    read. None without an error."""
    total_bytes = 0
    """The number of bytes that have arrived, taken or not."""
    trailers: Trailers | None = None
    """The trailer fields behind the last chunk, once the body is complete; None without any."""
    _taken_bytes = 0
    _limit = 0
    _flow: FlowControl | None = None
    _waiter: asyncio.Future[None] | None = None

    def __init__(self, limit: int = 0, flow: FlowControl | None = None) -> None:
        self._parts: list[bytes] = []
        if flow is not None:
            self._limit, self._flow = limit, flow

    @classmethod
    def of(cls, data: bytes) -> "BodyStream":
        """Return a body that is complete from the start."""
        body = cls()
        if data:
            body._parts.append(data)
            body.total_bytes = len(data)
        body.complete = True
        return body

    # ---------------------------------------------------------------- what the connection does

    def append(self, data: bytes) -> None:
        if not data:
            return
        parts = self._parts
        if parts and len(parts[-1]) + len(data) <= _SMALL_BYTES:
            parts[-1] += data
        else:
            parts.append(data)
        self.total_bytes += len(data)
        waiting = self.total_bytes - self._taken_bytes
        if self._flow is not None and waiting > self._limit and not self.full:
            self.full = True
            self._flow.body_full()
        self._wake()

    def end(self) -> None:
        self.complete = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Note that the rest of the body will never arrive. Has no effect on a body that is
        complete, or that has failed before."""
        if not self.complete and self.failure is None:
            self.failure = error
            self._wake()

    # -------------------------------------------------------------------- what the reader does

    def reject(self, error: BaseException) -> None:
        """Note that the body can't be used, even if all of it has arrived."""
        self.failure = error

    @property
    def settled(self) -> bool:
        """True if nothing more will arrive: the body is complete, or has failed."""
        return self.complete or self.failure is not None

    @property
    def taken(self) -> bool:
        """True if the reader has taken the whole body."""
        return self.complete and not self._parts

    def take(self) -> bytes:
        """Return the bytes that have arrived since the last call, perhaps none. Raises `failure` if
        it is set, even if some bytes arrived before it: a broken body must not look complete."""
        if self.failure is not None:
            raise self.failure
        parts = self._parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._taken_bytes = self.total_bytes
        if self.full:
            self.full = False
            assert self._flow is not None
            self._flow.body_taken()
        return data

    async def next(self, seconds: float) -> bytes:
        """Wait for bytes, and return those that have arrived; empty at the end of the body. Raises
        `failure` if it is set, and `TimeoutError` if nothing arrives for `seconds`."""
        while not self._parts and not self.complete and self.failure is None:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(seconds, time_out, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self.take()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        wake(waiter)


EMPTY = BodyStream.of(b"")
"""The body of a message that has none, complete from the start."""
