"""Joins two connections: what arrives on one goes out on the other, byte for byte, until both have
ended. For connections that are decided before their first byte passes: tunnels, WebSockets,
protocols other than HTTP.

Nothing is read that the other side hasn't room for. An end is passed on as an end, so that a
half-closed connection still gets its response; a loss breaks both. The protocols that own the
transports report what happens on them. Knows transports. Knows nothing of what passes.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

# The system's `struct linger`: switched on, with a time of 0 seconds.
_RESET = struct.pack("ii", 1, 0)


class Ended(Enum):
    """How a splice ended."""

    BOTH = "both"
    """Both sides ended in an orderly way."""
    LOST = "lost"
    """One side was lost or broken off."""
    IDLE = "idle"
    """Nothing passed for `idle_seconds`."""


class Spliced(NamedTuple):
    """How a splice ended, and how many bytes passed: `up` from the agent, `down` to it."""

    how: Ended
    up: int
    down: int


class SpliceDirection:
    """One direction: what `source` sends goes out on `sink`."""

    def __init__(
        self, splice: "Splice", source: asyncio.Transport, sink: asyncio.Transport
    ) -> None:
        self._splice = splice
        self._source = source
        self._sink = sink
        self.count = 0
        self.ended = False

    def forward(self, data: bytes) -> None:
        """Takes what the source sent."""
        # A transport may still deliver what it read before the connection was broken.
        if self.ended or self._splice.over:
            return
        self.count += len(data)
        self._splice.count(self, data)
        self._sink.write(data)

    def forward_end(self) -> None:
        """Notes that the source sends nothing more."""
        if self.ended:
            return
        self.ended = True
        if self._sink.can_write_eof():
            self._sink.write_eof()
            self._splice.close_if_ended()
        else:
            # TLS has no half-close here, so the end of one side ends both.
            self._splice.close()

    def sink_full(self) -> None:
        """Stops reading: the sink's buffer is full."""
        if not self._splice.over and not self.ended:
            self._source.pause_reading()

    def sink_free(self) -> None:
        """Reads on: the sink has room again."""
        if not self._splice.over and not self.ended:
            self._source.resume_reading()


class Splice:
    """`up` runs from the agent to the data source, `down` the other way. `on_down` gets the bytes
    that go down. Ends after `idle_seconds` without a byte."""

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
        self._finished: asyncio.Future[Ended] = self._loop.create_future()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(idle_seconds, self._check_idle)
        self.up = SpliceDirection(self, agent, upstream)
        self.down = SpliceDirection(self, upstream, agent)

    @property
    def over(self) -> bool:
        return self._finished.done()

    @property
    def how(self) -> Ended | None:
        """How the splice ended; None while it lasts."""
        return self._finished.result() if self._finished.done() else None

    async def finished(self) -> Spliced:
        """Returns once the splice is over. If cancelled, breaks both connections."""
        try:
            # Awaiting the future itself would cancel it together with the task that waits.
            await asyncio.wait((self._finished,))
        except asyncio.CancelledError:
            self.abort()
            raise
        return Spliced(self._finished.result(), self.up.count, self.down.count)

    def count(self, direction: SpliceDirection, data: bytes) -> None:
        self._last = self._loop.time()
        if direction is self.down and self._on_down is not None:
            self._on_down(data)

    def close_if_ended(self) -> None:
        if self.up.ended and self.down.ended:
            self.close()

    def close(self) -> None:
        """Closes both sides once everything written to them has been sent."""
        if self._finish(Ended.BOTH):
            for transport in self._transports:
                transport.close()

    def abort(self) -> None:
        """Breaks both sides, because one is lost or has to be cut off: the other side must not take
        that for an orderly end."""
        if self._finish(Ended.LOST):
            for transport in self._transports:
                reset(transport)

    def _check_idle(self) -> None:
        # Moving the timer with every byte would cost too much, so this checks how long ago the last
        # byte passed.
        left = self._last + self._idle_seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_idle)
        elif self._finish(Ended.IDLE):
            for transport in self._transports:
                reset(transport)

    def _finish(self, how: Ended) -> bool:
        # Every way to end comes through here, and only the first one counts.
        self._timer.cancel()
        if self._finished.done():
            return False
        self._finished.set_result(how)
        return True


def reset(transport: asyncio.Transport) -> None:
    """Breaks a connection with a TCP reset, so that its end can't be taken for an orderly one."""
    sock = transport.get_extra_info("socket")
    # A socket that is closed already has no descriptor, and no options.
    if sock is not None and sock.fileno() >= 0:
        # A linger time of 0 makes the system send RST instead of FIN.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
