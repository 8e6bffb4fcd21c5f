"""Sends requests to one data source exactly as given, and reads its responses as they were sent: no
target is rewritten, no field merged or invented, no redirect followed, no cookie kept, no body
inflated (proxy.md 0 facts 1 to 3, A1). A request that could do harm if repeated is sent only once.

Knows no policy and no protocol above HTTP.
"""

import logging
from collections.abc import Awaitable, Iterable
from typing import NamedTuple

from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.client.pool import Pool
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.response_parser import BadResponse, ResponseMessage
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import UpstreamNoResponse
from sidecar.proxy.upstream.body_sender import BodySender
from sidecar.proxy.upstream.failures import BROKEN, connected
from sidecar.proxy.upstream.response import UpstreamResponse

log = logging.getLogger(__name__)


class UpstreamRequest(NamedTuple):
    """A request to the data source.

    `lines` are its header fields, each with its line end, except those that frame the body:
    `length` is the value of `Content-Length`, if any, and `chunked` says whether the body is sent
    in chunks. `body` is a body that is at hand, `stream` the reader of one that is still arriving.
    """

    method: str
    target: str
    lines: bytes
    length: bytes | None = None
    chunked: bool = False
    body: bytes = b""
    stream: BodyStream | None = None
    upgrade: bool = False
    """Whether it asks for WebSocket."""

    def with_body(self, body: bytes) -> "UpstreamRequest":
        """The same request with another body, which is at hand."""
        length = None if self.chunked else b"%d" % len(body)
        return self._replace(body=body, length=length, stream=None)


class UpstreamClient:
    """A data source that is reached by `pool`. `host` is the value of `Host` that it gets; `prefix`
    comes before each target."""

    def __init__(self, host: str, prefix: str, pool: Pool, limits: ProxyLimits) -> None:
        self.host = host
        self._prefix = prefix.encode()
        self._host = host.encode()
        self._limits = limits
        self._idle_seconds = limits.stream_idle_seconds
        self.pool = pool
        self.close = pool.close
        self.release = pool.release
        self.discard = pool.discard

    @property
    def connections(self) -> int:
        """The number of open connections to the data source."""
        return self.pool.connections

    async def connect(self) -> UpstreamConnection:
        """A connection that was not idle. Raises `UpstreamFailed`. The caller must release or
        discard it."""
        return await connected(self.pool.connect())

    def detach(self, connection: UpstreamConnection) -> BufferedConnection:
        """Makes a connection that has switched to another protocol one end of a tunnel. Raises
        `ConnectionLost`."""
        transport = connection.detach()

        def on_lost(_exc: Exception | None) -> None:
            self.pool.forget(connection)

        detached = BufferedConnection(self._limits.buffer_bytes, on_lost)
        detached.adopt(transport, connection.tail)
        transport.resume_reading()
        return detached

    async def send(
        self, request: UpstreamRequest, first: Iterable[Awaitable[None]] = ()
    ) -> UpstreamResponse:
        """Sends `request`, and returns the response once its head has arrived. Raises
        `UpstreamFailed`.

        Looks at no response before all of `first` is done; if one of them raises, the exchange is
        broken off. The caller must `finish` the response, whatever becomes of it.
        """
        data = self.head(request) + _body(request)
        connection = self.pool.take_idle() or await self.connect()
        body_sender = self._start(connection, request, data)
        return await self.receive(connection, request, first, body_sender)

    async def receive(
        self,
        connection: UpstreamConnection,
        request: UpstreamRequest,
        first: Iterable[Awaitable[None]],
        body_sender: BodySender | None = None,
    ) -> UpstreamResponse:
        """The response to `request`, which was sent on `connection`; otherwise like `send`.

        The data source may have closed an idle connection while the request was on its way. If that
        is all that can have happened, and sending twice does no harm, the request is sent once more
        on a new connection (RFC 9112 section 9.3.1).
        """
        try:
            for each in first:
                await each
            message = await connection.response()
            return self._response(connection, request, body_sender, message)
        # Cancellation included: a connection with a response under way can't carry another request.
        except BaseException as error:
            self.pool.discard(connection)
            if body_sender is not None:
                await body_sender.stop()
            if not isinstance(error, BROKEN):
                raise
            if not (connection.reused and not connection.received_any and _repeatable(request)):
                raise UpstreamNoResponse from error
        log.info("the data source had closed an idle connection: sending the request once more")
        return await self._send_again(request)

    async def _send_again(self, request: UpstreamRequest) -> UpstreamResponse:
        data = self.head(request) + _body(request)
        connection = await self.connect()
        # Only a request without a body is repeated, so nothing has to send one.
        self._start(connection, request, data)
        try:
            message = await connection.response()
            response = self._response(connection, request, None, message)
        except BaseException as error:
            self.pool.discard(connection)
            if isinstance(error, BROKEN):
                raise UpstreamNoResponse from error
            raise
        response.retries = 1
        return response

    def _start(
        self, connection: UpstreamConnection, request: UpstreamRequest, data: bytes
    ) -> BodySender | None:
        try:
            connection.send(data, body=request.method != "HEAD")
        except BROKEN as error:
            self.pool.discard(connection)
            raise UpstreamNoResponse(
                "the data source closed the connection before it got the request"
            ) from error
        if request.stream is None:
            return None
        return BodySender(request.stream, connection, self._limits, chunked=request.chunked)

    def _response(
        self,
        connection: UpstreamConnection,
        request: UpstreamRequest,
        body_sender: BodySender | None,
        message: ResponseMessage,
    ) -> UpstreamResponse:
        if isinstance(message.body.failure, BadResponse):
            # The agent got nothing of it yet, so it can still get an error.
            raise message.body.failure
        to_head = request.method == "HEAD"
        return UpstreamResponse(
            self.pool, connection, body_sender, message, self._idle_seconds, to_head=to_head
        )

    def path(self, request: UpstreamRequest) -> str:
        """The target on the request line to the data source."""
        return self._prefix.decode() + request.target

    def head(self, request: UpstreamRequest) -> bytes:
        """The head of `request` as it is sent."""
        framing = b"Transfer-Encoding: chunked\r\n" if request.chunked else b""
        if request.length is not None:
            framing = b"Content-Length: %b\r\n" % request.length
        line = request.method.encode(), self._prefix, request.target.encode()
        rest = self._host, request.lines, framing
        return b"%b %b%b HTTP/1.1\r\nHost: %b\r\n%b%b\r\n" % (*line, *rest)


def _repeatable(request: UpstreamRequest) -> bool:
    """Whether the request may be sent twice (RFC 9110 section 9.2.2)."""
    return request.method in ("GET", "HEAD") and request.stream is None and not request.body


def _body(request: UpstreamRequest) -> bytes:
    if not request.chunked or request.stream is not None:
        return request.body
    body = request.body
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
