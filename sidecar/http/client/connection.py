"""Carries requests to a server over HTTP/1.1, one after the other on each connection, and notices
any bytes that arrive unasked.

Knows bytes, and where a response ends. Knows nothing of what is sent.
"""

import asyncio
from typing import cast

from sidecar.http.client.dialler import ClientLimits, DialledProtocol
from sidecar.http.client.request import Origin, UpstreamRequest, encode
from sidecar.http.messages.body import BodyStream, ConnectionLost
from sidecar.http.messages.chunks import encode_chunk, last_chunk
from sidecar.http.messages.response_parser import (
    SWITCHING,
    BadResponse,
    ResponseMessage,
    ResponseParser,
)
from sidecar.platform.waiters import time_out, wake


class UpstreamConnection(DialledProtocol):
    """A connection to a server. It belongs to the pool while it is idle, otherwise to the one
    request that took it from there."""

    def __init__(self, limits: ClientLimits) -> None:
        self._buffer_bytes = limits.buffer_bytes
        self._parser = ResponseParser(limits.head, self._new_body, trailers=limits.trailers)
        self._transport: asyncio.Transport | None = None
        self.arrived: ResponseMessage | None = None
        """The response to the current request; None until its head has arrived."""
        # Kept, since asking for the running loop takes a system call.
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.failure: Exception | None = None
        """The reason why the connection can't be used any more: it has ended, or was broken off,
        for instance because bytes arrived unasked. None while it is usable."""
        self.writing_paused = False
        """True while the server reads more slowly than the sidecar writes."""
        self.pooled = True
        """True while the connection counts against the pool's limit."""
        self.reused = False
        """True if the connection has carried a request before the current one."""
        self.unused = False
        """True if the connection has been idle since before the pool's last sweep."""
        self.received_any = False
        """True if any byte has arrived since the current request was sent."""
        self._chunked = False
        """True if the current request's body is sent in chunks."""

    def rest(self) -> bool:
        """Prepare the connection for another request. Returns whether it can carry one: it is open,
        and exactly the whole last response has arrived. The last response is forgotten, since it
        may hold secrets."""
        response, self.arrived = self.arrived, None
        self.reused, self.received_any, self.unused = True, False, False
        return (
            self.failure is None
            and self._parser.complete
            and not self._parser.excess
            and (response is None or not response.should_close)
        )

    def begin(self, request: UpstreamRequest, origin: Origin) -> None:
        """Send a request, as far as its body has arrived. Raises `ConnectionLost`."""
        self._chunked = request.chunked
        to_head = request.method == "HEAD"
        self.send(encode(request, origin), to_head=to_head, upgrade=request.upgrade)

    def send_part(self, part: bytes) -> None:
        """Send a part of the body. Raises `ConnectionLost`."""
        self._open_transport().write(encode_chunk(part) if self._chunked else part)

    def finish_body(self, trailer_lines: bytes) -> None:
        """End the body, with its trailers, each with its line end. Raises `ConnectionLost`."""
        if self._chunked:
            self._open_transport().write(last_chunk(trailer_lines))

    @property
    def unheard(self) -> bool:
        """True if the server may have closed the connection before the request reached it."""
        return self.reused and not self.received_any

    @property
    def unread(self) -> bool:
        """False: a server of HTTP/1.1 can't say that it did not read a request."""
        return False

    def send(self, data: bytes, *, to_head: bool = False, upgrade: bool = False) -> None:
        """Write a request, or its first part. With `to_head`, the request is a HEAD, whose response
        has no body; with `upgrade`, the response may be a 101. Raises `ConnectionLost`."""
        # Unasked bytes, which would be taken for the response, have broken the connection off.
        transport = self._open_transport()
        if not self._parser.complete:
            raise ConnectionLost("another response is still arriving")
        self._parser.expect(to_head=to_head, upgrade=upgrade)
        transport.write(data)

    async def drain(self, seconds: float) -> None:
        """Wait until the server has taken enough of the written bytes. Raises `TimeoutError` if
        that takes longer than `seconds`, and `ConnectionLost`."""
        while self.writing_paused and self.failure is None:
            self._drained = drained = self._loop.create_future()
            timer = self._loop.call_later(seconds, time_out, drained)
            try:
                await drained
            finally:
                timer.cancel()
                self._drained = None
        if self.failure is not None:
            raise self.failure

    async def response(self) -> ResponseMessage:
        """Wait for the head of the response, and return the response. Raises `ConnectionLost` and
        `BadResponse`."""
        if self.arrived is None and self.failure is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.arrived is not None:
            return self.arrived
        assert self.failure is not None
        raise self.failure

    def detach(self) -> tuple[asyncio.Transport, bytes]:
        """Return the transport, for another protocol to use after a 101, and the bytes that
        followed the head of the 101. Raises `ConnectionLost`."""
        return self._open_transport(), self._parser.tail

    def abort(self, why: str = "the connection was broken off") -> None:
        """Break the connection off, and fail a response that is still arriving, with `why` as the
        reason."""
        self._fail(ConnectionLost(why))

    # ---------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return  # a transport may still deliver what it read before it was aborted
        self.received_any = True
        parser = self._parser
        try:
            response = parser.feed(data)
        except BadResponse as error:
            self._fail(error)
            return
        if response is not None:
            self.arrived = response
            if response.status == SWITCHING and self._transport is not None:
                # What follows waits in the system's buffer until the connection is detached.
                self._transport.pause_reading()
            wake(self._waiter)
        elif parser.excess:
            self.abort("the server sent what was not asked for")

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        # Neither a reset nor an end that this side made is orderly.
        if exc is None and self.failure is None:
            self._parser.end()
        self.abort("the server closed the connection")
        self._transport = None

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        wake(self._drained)

    # ---------------------------------------------------- what a body tells its connection

    def body_full(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def body_taken(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # ----------------------------------------------------------------------------------------

    def _new_body(self) -> BodyStream:
        return BodyStream(self._buffer_bytes, self)

    def _open_transport(self) -> asyncio.Transport:
        transport = self._transport
        if self.failure is not None or transport is None or transport.is_closing():
            raise ConnectionLost("the connection was closed")
        return transport

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            self._parser.fail(error)
            wake(self._waiter)
            wake(self._drained)
        if self._transport is not None:
            self._transport.abort()
