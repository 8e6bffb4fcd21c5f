"""Buffers what arrives on a connection whose protocol isn't known yet, until a protocol takes the
connection over; and splices two connections: what arrives on one goes out on the other, byte for
byte, until both have ended. Splices are for connections that are decided before their first byte
passes: tunnels, WebSockets, protocols other than HTTP.

Nothing is read from one side while the other has no room for it. The end of one direction is passed
on as an end, so that a half-closed connection still gets its response; the loss of one connection
breaks both. The protocols that own the transports report what happens on them. Knows nothing of
what passes.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import cast

from sidecar.http.client.dialler import DialledProtocol
from sidecar.http.server.request import ConnectionFactory, HttpRequest
from sidecar.http.tcp_reset import end_sending, reset

OnLost = Callable[[Exception | None], None]


class BufferedConnection(DialledProtocol):
    """A connection whose bytes are buffered until `hand_to` gives them to a protocol. It buffers up
    to `limit` bytes, plus the rest of one read, and then pauses reading. `on_lost` is called when
    the connection is lost."""

    def __init__(self, limit: int, on_lost: OnLost | None = None) -> None:
        self._limit = limit
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._inner: asyncio.Protocol | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._paused = False
        self.ended = False
        """True if no more bytes will arrive."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost."""

    def adopt(
        self, transport: asyncio.BaseTransport, data: bytes = b"", *, ended: bool = False
    ) -> "BufferedConnection":
        """Take over a connection from another protocol, with the `data` that the other one read and
        did not use. `ended` says that nothing more will arrive."""
        # uvloop's transports don't inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_protocol(self)
        if data:
            self.data_received(data)
        self.ended = ended
        return self

    def abort(self) -> None:
        """Close the connection at once; bytes that wait to be sent are lost."""
        self.transport.abort()

    @property
    def buffered(self) -> bytes:
        return bytes(self._buffer)

    def buffered_from(self, at: int) -> bytes:
        """Return the buffer without its first `at` bytes."""
        return bytes(self._buffer[at:])

    async def wait_for_more(self) -> bool:
        """Wait until more bytes are buffered. Returns False if the connection ended without any."""
        size = len(self._buffer)
        # The buffer was full. Its reader has now seen all of it and asks for more.
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        while len(self._buffer) == size and not self.ended:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return len(self._buffer) > size

    def hand_to(self, inner: asyncio.Protocol) -> None:
        """Let the protocol `inner` run the connection from now on. It gets the buffered bytes
        first."""
        # This object stays the transport's protocol and passes every callback on, so `closed` and
        # `on_lost` work for whatever runs the connection.
        self._inner = inner
        inner.connection_made(self.transport)
        if self.closed.done():
            # Lost while the other side was being connected.
            inner.connection_lost(None)
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        if data:
            inner.data_received(data)
        if self.ended:
            if not inner.eof_received():
                self.transport.close()
        elif self._paused:
            self.transport.resume_reading()

    # -------------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.data_received(data)
        else:
            self._buffer += data
            # Nothing is decided yet, so the sender must not be able to fill the memory.
            if len(self._buffer) >= self._limit and not self._paused:
                self._paused = True
                self.transport.pause_reading()
            self._wake()

    def eof_received(self) -> bool | None:
        if self._inner is not None:
            return self._inner.eof_received()
        self.ended = True
        self._wake()
        # Keeps the connection open for writing: a side that half-closed may wait for a response.
        return True

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        if not self.closed.done():
            self.closed.set_result(None)
        if self._inner is not None:
            self._inner.connection_lost(exc)
        self._wake()
        if self._on_lost is not None:
            self._on_lost(exc)

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


def take_over(request: HttpRequest, limit: int) -> tuple[BufferedConnection, ConnectionFactory]:
    """Return the agent's connection, taken over from its HTTP server with the bytes that followed
    `request`, to become one end of a tunnel; and a factory of HTTP connections inside the tunnel.
    `limit` is the most bytes to buffer. Raises `ConnectionResetError` if the agent is gone."""
    given = request.hand_over()
    outer = given.transport.get_protocol()
    # The protocol that runs the connection around this request has to learn of the end as well.
    on_lost = outer.connection_lost if isinstance(outer, BufferedConnection) else given.on_lost
    agent = BufferedConnection(limit, on_lost)
    return agent.adopt(given.transport, given.data, ended=given.ended), given.nested


class Ended(Enum):
    """The way in which a splice of two connections ended."""

    BOTH = "both"
    """Both sides ended in an orderly way."""
    LOST = "lost"
    """One side was lost or broken off."""
    IDLE = "idle"
    """No byte passed for `idle_seconds`."""


class SpliceDirection(asyncio.Protocol):
    """One direction of a splice: the bytes that arrive from `source` are written to `sink`. This is
    also the asyncio protocol of `source`, so it hears when `source` is too slow to take the bytes
    of the direction `opposite`; it then pauses reading there."""

    opposite: "SpliceDirection"

    def __init__(
        self, splice: "Splice", source: asyncio.Transport, sink: asyncio.Transport
    ) -> None:
        self._splice = splice
        self.source = source
        self._sink = sink
        self.count = 0
        """The number of bytes that have passed in this direction."""
        self.ended = False

    def data_received(self, data: bytes) -> None:
        # A transport may still deliver what it read before the connection was broken.
        if self.over:
            return
        self.count += len(data)
        self._splice.passed(self, data)
        self._sink.write(data)

    def eof_received(self) -> bool:
        """Pass on the end of this direction, and keep the other direction open: a side that
        half-closes may still wait for a response."""
        if not self.ended:
            self.ended = True
            if not self._sink.can_write_eof():
                # TLS has no half-close here, so the end of one side ends both.
                self._splice.close()
            else:
                end_sending(self._sink)
                if self.opposite.ended:
                    self._splice.close()
        return True

    def connection_lost(self, _exc: Exception | None) -> None:
        self._splice.abort()

    def pause_writing(self) -> None:
        if not self.opposite.over:
            self.opposite.source.pause_reading()

    def resume_writing(self) -> None:
        if not self.opposite.over:
            self.opposite.source.resume_reading()

    @property
    def over(self) -> bool:
        """True if no more bytes pass in this direction."""
        return self.ended or self._splice.how is not None


class Splice:
    """Two joined connections: the direction `up` runs from the agent to the data source, `down` the
    other way. `on_down` is called with the bytes that go down. The splice is broken off after
    `idle_seconds` without a byte."""

    def __init__(
        self,
        agent: asyncio.Transport,
        upstream: asyncio.Transport,
        idle_seconds: float,
        on_down: Callable[[bytes], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transports = agent, upstream
        self._idle_seconds = idle_seconds
        self._on_down = on_down
        self._last = self._loop.time()
        self._timer = self._loop.call_later(idle_seconds, self._check_idle)
        self.how: Ended | None = None
        """The way in which the splice ended; None while it lasts."""
        self.finished: asyncio.Future[None] = self._loop.create_future()
        self.up = SpliceDirection(self, agent, upstream)
        self.down = SpliceDirection(self, upstream, agent)
        self.up.opposite, self.down.opposite = self.down, self.up

    def passed(self, direction: SpliceDirection, data: bytes) -> None:
        self._last = self._loop.time()
        if direction is self.down and self._on_down is not None:
            self._on_down(data)

    def close(self) -> None:
        """Close both connections once everything written to them has been sent."""
        if self._finish(Ended.BOTH):
            for transport in self._transports:
                transport.close()

    def abort(self, how: Ended = Ended.LOST) -> None:
        """Reset both connections, because one is lost or has to be cut off: the other side must not
        take this for an orderly end."""
        if self._finish(how):
            for transport in self._transports:
                reset(transport)

    def _check_idle(self) -> None:
        # Moving the timer with every byte would cost too much, so this checks how long ago the last
        # byte passed.
        left = self._last + self._idle_seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_idle)
        else:
            self.abort(Ended.IDLE)

    def _finish(self, how: Ended) -> bool:
        # Every way to end comes through here, and only the first one counts.
        if self.how is not None:
            return False
        self._timer.cancel()
        self.how = how
        self.finished.set_result(None)
        return True
