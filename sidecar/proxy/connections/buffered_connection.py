"""One end of a connection whose protocol isn't known yet: buffers what arrives until the connection
is handed to a protocol. Learns of its end in either case.

Knows bytes and ends. Knows nothing of what they mean.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from sidecar.http.client.dialler import DialledProtocol
from sidecar.http.server.request import ConnectionFactory, HttpRequest

OnLost = Callable[[Exception | None], None]


class BufferedConnection(DialledProtocol):
    """Buffers up to `limit` bytes, plus the rest of one read. `on_lost` is called when the
    connection is lost."""

    def __init__(self, limit: int, on_lost: OnLost | None = None) -> None:
        self._limit = limit
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._inner: asyncio.Protocol | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._paused = False
        self.ended = False
        """Whether nothing more will arrive."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost."""

    def adopt(
        self, transport: asyncio.BaseTransport, data: bytes = b"", *, ended: bool = False
    ) -> "BufferedConnection":
        """Takes over a connection from another protocol, with the `data` that it left. `ended` says
        that nothing more will arrive."""
        # uvloop's transports don't inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_protocol(self)
        if data:
            self.data_received(data)
        self.ended = ended
        return self

    def abort(self) -> None:
        """Breaks the connection off."""
        self.transport.abort()

    @property
    def buffered(self) -> bytes:
        return bytes(self._buffer)

    def buffered_from(self, at: int) -> bytes:
        """The buffer without its first `at` bytes."""
        return bytes(self._buffer[at:])

    async def wait_for_more(self) -> bool:
        """Waits until more is buffered; False if nothing more will arrive."""
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
        """Lets `inner` run the connection from now on, starting with what is buffered."""
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
    """The connection of `request` as one end of a tunnel, with the bytes that followed the request,
    and a factory of HTTP connections inside of it. Raises `ConnectionResetError` if the agent is
    gone."""
    given = request.hand_over()
    outer = given.transport.get_protocol()
    # What runs the connection that the request came inside of has to learn of its end as well.
    on_lost = outer.connection_lost if isinstance(outer, BufferedConnection) else given.on_lost
    agent = BufferedConnection(limit, on_lost)
    return agent.adopt(given.transport, given.data, ended=given.ended), given.nested
