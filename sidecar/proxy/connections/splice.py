"""Two connections joined: what arrives on one goes out on the other, byte for byte, until both
have ended. For what is decided once, before a byte of it passes: tunnels, web sockets, protocols
that are not HTTP.

What the taker does not take is not read. An end is passed on as an end, so that a half-closed
connection still gets its answer; a loss breaks both. The protocols that own the transports tell
what happens on them. Knows transports. Knows nothing of what passes.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

_RESET = struct.pack("ii", 1, 0)


class Ended(Enum):
    """How a splice ended."""

    BOTH = "both"
    """Both sides ended in good order."""
    LOST = "lost"
    """One side was lost, or broken off."""
    IDLE = "idle"
    """Nothing had passed for as long as is allowed."""


class Spliced(NamedTuple):
    """What passed, in bytes: `up` from the agent, `down` to it."""

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

    def arrived(self, data: bytes) -> None:
        """Data of the source's."""
        if self.ended or self._splice.over:
            return
        self.count += len(data)
        self._splice.passed(self, data)
        self._sink.write(data)

    def end(self) -> None:
        """The source sends nothing more."""
        if self.ended:
            return
        self.ended = True
        if self._sink.can_write_eof():
            self._sink.write_eof()
            self._splice.check()
        else:
            # TLS here has no half-close: an end is the end of both.
            self._splice.close()

    def sink_full(self) -> None:
        """The sink takes no more for the moment."""
        if not self._splice.over and not self.ended:
            self._source.pause_reading()

    def sink_free(self) -> None:
        """The sink takes more."""
        if not self._splice.over and not self.ended:
            self._source.resume_reading()


class Splice:
    """`up` is from the agent to the data source, `down` the other way. `seen` gets what goes down.
    `idle_seconds` without a byte end it."""

    def __init__(
        self,
        agent: asyncio.Transport,
        upstream: asyncio.Transport,
        idle_seconds: float,
        seen: Callable[[bytes], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transports = agent, upstream
        self._idle_seconds = idle_seconds
        self._seen = seen
        self._finished: asyncio.Future[Ended] = self._loop.create_future()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(idle_seconds, self._look)
        self.up = SpliceDirection(self, agent, upstream)
        self.down = SpliceDirection(self, upstream, agent)

    @property
    def over(self) -> bool:
        return self._finished.done()

    @property
    def how(self) -> Ended | None:
        """How it ended; None while it lasts."""
        return self._finished.result() if self._finished.done() else None

    async def finished(self) -> Spliced:
        """Returns once it is over; cancelled, it breaks both connections."""
        try:
            # Not the future itself, which would be cancelled with whoever waits for it.
            await asyncio.wait((self._finished,))
        except asyncio.CancelledError:
            self.lost()
            raise
        return Spliced(self._finished.result(), self.up.count, self.down.count)

    def passed(self, way: SpliceDirection, data: bytes) -> None:
        self._last = self._loop.time()
        if way is self.down and self._seen is not None:
            self._seen(data)

    def check(self) -> None:
        if self.up.ended and self.down.ended:
            self.close()

    def close(self) -> None:
        """Ends both sides once what was written is out."""
        if self._over(Ended.BOTH):
            for transport in self._transports:
                transport.close()

    def lost(self) -> None:
        """One side is gone, or is to go: the other must not take that for a good end."""
        if self._over(Ended.LOST):
            for transport in self._transports:
                reset(transport)

    def _look(self) -> None:
        left = self._last + self._idle_seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        elif self._over(Ended.IDLE):
            for transport in self._transports:
                reset(transport)

    def _over(self, how: Ended) -> bool:
        self._timer.cancel()
        if self._finished.done():
            return False
        self._finished.set_result(how)
        return True


def reset(transport: asyncio.Transport) -> None:
    """Breaks a connection so that its end can't be taken for a good one."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # Without this the system ends the connection in good order.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
