"""Joins two connections: what arrives on one goes out on the other, byte for byte, until both have
ended. For connections that are decided before their first byte passes: tunnels, WebSockets,
protocols other than HTTP.

Nothing is read that the other side hasn't room for. An end is passed on as an end, so that a
half-closed connection still gets its response; a loss breaks both. The protocols that own the
transports report what happens on them. Knows transports. Knows nothing of what passes.
"""

import asyncio
from collections.abc import Callable
from enum import Enum

from sidecar.http.tcp_reset import end_sending, reset


class Ended(Enum):
    """How a splice ended."""

    BOTH = "both"
    """Both sides ended in an orderly way."""
    LOST = "lost"
    """One side was lost or broken off."""
    IDLE = "idle"
    """Nothing passed for `idle_seconds`."""


class SpliceDirection(asyncio.Protocol):
    """One direction: what `source` sends goes out on `sink`. It is the protocol of `source`, so it
    also hears when that takes no more of what comes the other way, by `back`."""

    back: "SpliceDirection"

    def __init__(
        self, splice: "Splice", source: asyncio.Transport, sink: asyncio.Transport
    ) -> None:
        self._splice = splice
        self.source = source
        self._sink = sink
        self.count = 0
        """How many bytes have passed."""
        self.ended = False

    def data_received(self, data: bytes) -> None:
        # A transport may still deliver what it read before the connection was broken.
        if self.over:
            return
        self.count += len(data)
        self._splice.passed(self, data)
        self._sink.write(data)

    def eof_received(self) -> bool:
        """Keeps the connection open for writing: a side that half-closes may wait for a
        response."""
        if not self.ended:
            self.ended = True
            if not self._sink.can_write_eof():
                # TLS has no half-close here, so the end of one side ends both.
                self._splice.close()
            else:
                end_sending(self._sink)
                if self.back.ended:
                    self._splice.close()
        return True

    def connection_lost(self, _exc: Exception | None) -> None:
        self._splice.abort()

    def pause_writing(self) -> None:
        if not self.back.over:
            self.back.source.pause_reading()

    def resume_writing(self) -> None:
        if not self.back.over:
            self.back.source.resume_reading()

    @property
    def over(self) -> bool:
        """Whether nothing more passes."""
        return self.ended or self._splice.how is not None


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
        self._last = self._loop.time()
        self._timer = self._loop.call_later(idle_seconds, self._check_idle)
        self.how: Ended | None = None
        """How it ended; None while it lasts."""
        self.finished: asyncio.Future[None] = self._loop.create_future()
        self.up = SpliceDirection(self, agent, upstream)
        self.down = SpliceDirection(self, upstream, agent)
        self.up.back, self.down.back = self.down, self.up

    def passed(self, direction: SpliceDirection, data: bytes) -> None:
        self._last = self._loop.time()
        if direction is self.down and self._on_down is not None:
            self._on_down(data)

    def close(self) -> None:
        """Closes both sides once everything written to them has been sent."""
        if self._finish(Ended.BOTH):
            for transport in self._transports:
                transport.close()

    def abort(self, how: Ended = Ended.LOST) -> None:
        """Breaks both sides, because one is lost or has to be cut off: the other side must not take
        that for an orderly end."""
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
