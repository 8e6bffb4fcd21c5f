"""One end of a connection, from when nobody knows yet what is spoken on it: holds what arrives, and
is then given to a protocol, or joined to another end. It hears of the connection's end whatever has
become of it.

Knows bytes and ends. Knows nothing of what they mean.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from sidecar.proxy.connections.splice import Splice, SpliceDirection

Lost = Callable[[Exception | None], None]


class BufferedConnection(asyncio.Protocol):
    """Holds at most `most` bytes, and what one read gave beyond them. `lost` is called when the
    connection is."""

    def __init__(self, most: int, lost: Lost | None = None) -> None:
        self._most = most
        self._lost = lost
        self._held = bytearray()
        self._inner: asyncio.Protocol | None = None
        self._splice: Splice | None = None
        self._out: SpliceDirection | None = None
        self._into: SpliceDirection | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._paused = False
        self.ended = False
        """Whether nothing more will come."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost."""

    def adopt(
        self, transport: asyncio.BaseTransport, held: bytes = b"", *, ended: bool = False
    ) -> "BufferedConnection":
        """Takes a connection over from another protocol, with what that has left; `ended` where
        nothing more will come."""
        # uvloop's transports are none of asyncio's by type.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_protocol(self)
        if held:
            self.data_received(held)
        self.ended = ended
        return self

    @property
    def held(self) -> bytes:
        return bytes(self._held)

    def held_from(self, at: int) -> bytes:
        """What is held, without its first `at` bytes."""
        return bytes(self._held[at:])

    async def more(self) -> bool:
        """Waits until more is held; False where nothing more will come."""
        size = len(self._held)
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        while len(self._held) == size and not self.ended:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return len(self._held) > size

    def give(self, inner: asyncio.Protocol) -> None:
        """From now on `inner` speaks on the connection, beginning with what is held."""
        if self.over.done():
            return
        self._inner = inner
        inner.connection_made(self.transport)
        held, self._held = bytes(self._held), bytearray()
        if held:
            inner.data_received(held)
        if self.ended and not inner.eof_received():
            self.transport.close()
        elif self._paused:
            self.transport.resume_reading()

    def join(self, splice: Splice, out: SpliceDirection, into: SpliceDirection) -> None:
        """From now on what arrives goes out, beginning with what is held; see `Splice`."""
        if self.over.done():
            splice.lost()
            return
        self._splice, self._out, self._into = splice, out, into
        held, self._held = bytes(self._held), bytearray()
        if held:
            out.arrived(held)
        if self.ended:
            out.end()
        elif self._paused:
            self.transport.resume_reading()

    # -------------------------------------------------------------------------------- what happens

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.data_received(data)
        elif self._out is not None:
            self._out.arrived(data)
        else:
            self._held += data
            if len(self._held) >= self._most and not self._paused:
                self._paused = True
                self.transport.pause_reading()
            self._wake()

    def eof_received(self) -> bool | None:
        if self._inner is not None:
            return self._inner.eof_received()
        self.ended = True
        if self._out is not None:
            self._out.end()
        self._wake()
        return True

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()
        elif self._into is not None:
            self._into.sink_full()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()
        elif self._into is not None:
            self._into.sink_free()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        if not self.over.done():
            self.over.set_result(None)
        if self._inner is not None:
            self._inner.connection_lost(exc)
        elif self._splice is not None:
            self._splice.lost()
        self._wake()
        if self._lost is not None:
            self._lost(exc)

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
