"""One end of a connection that speaks in messages: bounded reading ahead, writing with back
pressure, and the news that the other side is gone, even while nothing is read.

Knows frames. Knows neither TLS nor who the other side is.
"""

import asyncio
import select
from typing import cast

from sidecar.http.client.dialler import DialledProtocol
from sidecar.postgres.frames import Frame, FrameReader, Limits

BUFFER_BYTES = 65_536
"""The bytes that are read ahead of a slow reader; a whole message that is longer, too."""
_TURN = 64
"""The frames that may be read without a wait before other connections have their turn."""
_LOOK_SECONDS = 1.0
_HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class ConnectionLost(ConnectionError):
    """the connection was lost"""


class FramedConnection(DialledProtocol):
    """A connection of which `read` returns one frame after the other. One task may read at a
    time."""

    def __init__(self, limits: Limits, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(limits)
        self._buffer_bytes = buffer_bytes
        self._transport: asyncio.Transport | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._reading_paused = False
        self._unbroken = 0
        self.writing_paused = False
        """True while the other side reads more slowly than the sidecar writes."""
        self.received = self.sent = 0
        """The bytes of messages that arrived, and that were written."""
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more will arrive: the connection is lost, or the other side has ended
        it. What arrived before can still be read. It is noticed even while nothing is read."""

    # ------------------------------------------------------------------------------------- reading

    async def read(self) -> Frame:
        """Return the next frame. Raises `ConnectionLost` if none will come, `ProtocolFault` if what
        arrived is no message."""
        while True:
            await self._take_turn()
            frame = self._reader.take()
            if frame is not None:
                # INVARIANT: nothing is awaited from here on, so that a reader that is cancelled
                # loses no frame.
                self._unbroken += 1
                self._make_room()
                return frame
            await self._more()

    async def _more(self) -> None:
        """Wait until more bytes have arrived. Raises `ConnectionLost`."""
        self._unbroken = 0
        if self.lost.done():
            raise ConnectionLost("the connection was lost")
        self._make_room()
        assert self._arrived is None, "two tasks read from one connection"
        self._arrived = self._loop.create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    async def _take_turn(self) -> None:
        # What waits in the buffer may be ten thousand messages of 5 bytes.
        if self._unbroken >= _TURN:
            self._unbroken = 0
            await asyncio.sleep(0)

    def _received(self, data: bytes) -> None:
        self.received += len(data)
        self._reader.feed(data)
        if not self._reading_paused and self._full:
            self._reading_paused = True
            self._open_transport().pause_reading()
            self._looking = self._loop.call_later(_LOOK_SECONDS, self._look)
        self._wake()

    @property
    def _full(self) -> bool:
        # A message that is longer than the buffer has to arrive all the same. How long it may be,
        # the frames' limits say.
        return self._reader.held >= self._buffer_bytes and not self._reader.starved

    def _make_room(self) -> None:
        if self._reading_paused and not self._full:
            self._reading_paused = False
            if self._looking is not None:
                self._looking.cancel()
            if not self.lost.done():
                self._open_transport().resume_reading()

    def _look(self) -> None:
        """See whether the other side is gone. While reading is paused, the event loop doesn't say
        so, and a statement would run on. An end is not seen while more was sent than the system
        takes: that agent's statement ends by its time limit."""
        sock = self._open_transport().get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return
        poll = select.poll()
        poll.register(sock.fileno(), _HUNG_UP)
        if poll.poll(0):
            self._end()
        else:
            self._looking = self._loop.call_later(_LOOK_SECONDS, self._look)

    # ------------------------------------------------------------------------------------- writing

    def write(self, data: bytes) -> None:
        """Send bytes. They are dropped if the connection is lost: `read` and `drain` say so."""
        if self._transport is not None and not self._transport.is_closing():
            self.sent += len(data)
            self._transport.write(data)

    async def drain(self, seconds: float) -> None:
        """Wait until the other side has taken enough of what was written. Raises `TimeoutError` if
        that takes longer than `seconds`, and `ConnectionLost`."""
        async with asyncio.timeout(seconds):
            while self.writing_paused and not self.lost.done():
                self._drained = self._loop.create_future()
                try:
                    await self._drained
                finally:
                    self._drained = None
        if self.lost.done():
            raise ConnectionLost("the connection was lost")

    def close(self) -> None:
        """Close the connection once everything written to it has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; bytes that wait to be sent are dropped."""
        if self._transport is not None:
            self._transport.abort()
        # In the middle of a TLS handshake, asyncio doesn't tell this protocol.
        self._end()

    # ------------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def eof_received(self) -> bool:
        """End the connection: no client of PostgreSQL ends its sending side to wait for answers."""
        self._end()
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        _finish(self._drained)

    def _end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        _finish(self.lost)
        _finish(self._drained)
        self._wake()

    def _wake(self) -> None:
        _finish(self._arrived)

    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


def _finish(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
