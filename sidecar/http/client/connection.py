"""One connection to a server: carries one request after the other, and notices whatever arrives
that was not asked for.

Knows bytes, and where a response ends. Knows nothing of what is sent.
"""

import asyncio
from typing import cast

from sidecar.http.client.dialler import DialledProtocol
from sidecar.http.client.limits import ClientLimits
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.disconnects import ConnectionLost
from sidecar.http.messages.response_parser import BadResponse, ResponseMessage, ResponseParser


class UpstreamConnection(DialledProtocol):
    """Belongs to the pool, or to the one request that took it from there."""

    def __init__(self, limits: ClientLimits) -> None:
        self._buffer_bytes = limits.buffer_bytes
        self._parser = ResponseParser(limits.head, self._new_body)
        self._transport: asyncio.Transport | None = None
        self._response: ResponseMessage | None = None
        self._failure: Exception | None = None
        # Kept, since asking for the running loop takes a system call.
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self.writing_paused = False
        """Whether the server takes less than was written."""
        self.pooled = True
        """Whether it holds one of the pool's slots."""
        self._idle_since = 0.0
        self.reused = False
        """Whether it has carried a request before the current one."""
        self.received_any = False
        """Whether any byte has arrived since the current request was sent."""

    @property
    def lost(self) -> bool:
        """Whether it has ended or was broken off, as it is by bytes that were not asked for."""
        return self._failure is not None

    @property
    def reusable(self) -> bool:
        """Whether it can carry another request: it is open, and all of the last response has
        arrived, and nothing else."""
        response, parser = self._response, self._parser
        return (
            self._failure is None
            and parser.complete
            and not parser.excess
            and (response is None or not response.should_close)
        )

    def rest(self) -> None:
        """Prepares for another request, and forgets the last response, which may hold secrets."""
        self.reused, self.received_any, self._response = True, False, None
        self._idle_since = self._loop.time()

    @property
    def idle_seconds(self) -> float:
        """How long ago it began to wait for another request."""
        return self._loop.time() - self._idle_since

    def send(self, data: bytes, *, body: bool = True, upgrade: bool = False) -> None:
        """Writes a request, or its first part. Its response has no `body` if it is a HEAD; with
        `upgrade`, it may be a 101. Raises `ConnectionLost`."""
        # What arrived unasked, and would be taken for the response, has broken it off.
        if self._failure is not None or not self._parser.complete:
            raise ConnectionLost("the connection was closed before the request was sent")
        self._parser.expect(body=body, upgrade=upgrade)
        self.write(data)

    def write(self, data: bytes) -> None:
        transport = self._transport
        if self._failure is not None or transport is None or transport.is_closing():
            raise ConnectionLost("the connection was closed")
        transport.write(data)

    async def drain(self, seconds: float) -> None:
        """Returns once the server has taken enough of what was written. Raises `TimeoutError` if
        that takes longer than `seconds`, and `ConnectionLost`."""
        while self.writing_paused and self._failure is None:
            self._drained = drained = self._loop.create_future()
            timer = self._loop.call_later(seconds, _time_out, drained)
            try:
                await drained
            finally:
                timer.cancel()
                self._drained = None
        if self._failure is not None:
            raise self._failure

    async def response(self) -> ResponseMessage:
        """The response, once its head is there. Raises `ConnectionLost` and `BadResponse`."""
        if self._response is None and self._failure is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._response is not None:
            return self._response
        assert self._failure is not None
        raise self._failure

    @property
    def tail(self) -> bytes:
        """What followed the head of a 101. Nothing is read after it."""
        return self._parser.tail

    def detach(self) -> asyncio.Transport:
        """The transport, for another protocol. Raises `ConnectionLost`."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionLost("the connection was closed")
        return transport

    def abort(self, why: str = "the connection was broken off") -> None:
        """Breaks the connection off, and fails a response that is still arriving."""
        self._fail(ConnectionLost(why))

    # ---------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return  # a transport may still deliver what it read before it was aborted
        self.received_any = True
        parser = self._parser
        try:
            response = parser.feed(data)
        except BadResponse as error:
            self._fail(error)
            return
        if response is not None:
            self._response = response
            if response.status == 101 and self._transport is not None:
                # What follows waits in the system's buffer until the connection is detached.
                self._transport.pause_reading()
            _wake(self._waiter)
        elif parser.excess:
            self.abort("the server sent what was not asked for")

    def eof_received(self) -> None:
        if self._failure is None:
            self._parser.end()
        self._fail(ConnectionLost("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        # A reset is no orderly end, and neither is one that this side made.
        if exc is None and self._failure is None:
            self._parser.end()
        self._fail(ConnectionLost("the server closed the connection"))
        self._transport = None

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        _wake(self._drained)

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

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._parser.fail(error)
            _wake(self._waiter)
            _wake(self._drained)
        if self._transport is not None:
            self._transport.abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _time_out(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
