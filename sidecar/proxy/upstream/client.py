"""Sends requests to one data source exactly as given, and reads its responses as they were sent.

aiohttp's connector opens and verifies the connections, and its parser reads the responses. But the
requests are written here, because `ClientSession` would rewrite the target, merge fields that
differ only in case, invent fields, follow redirects, keep cookies, read proxy settings from the
environment, inflate bodies, and retry requests on its own (proxy.md 0 facts 1 to 3, A1). A request
that could do harm if repeated is sent only once.

Knows no policy and no protocol above HTTP.
"""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import NamedTuple

import aiohttp
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from sidecar.http.headers import sort_response_fields
from sidecar.http.messages.body import BodyStream
from sidecar.platform import eager
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import UpstreamNoResponse
from sidecar.proxy.upstream.body_sender import BodySender
from sidecar.proxy.upstream.connection import ResponseInterceptor, UpstreamConnection
from sidecar.proxy.upstream.dialler import Dialler
from sidecar.proxy.upstream.pool import Pool
from sidecar.proxy.upstream.response import UpstreamHead, UpstreamResponse

log = logging.getLogger(__name__)

_BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError)


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


def framing(length: bytes | None, *, chunked: bool) -> bytes:
    """The header line that frames a body; empty without a body."""
    if length is not None:
        return b"Content-Length: %b\r\n" % length
    return b"Transfer-Encoding: chunked\r\n" if chunked else b""


class UpstreamClient:
    """The data source at `url`, which may have a path prefix. `dialler` opens its connections."""

    def __init__(self, url: str, dialler: Dialler, limits: ProxyLimits) -> None:
        parsed = URL(url)
        self._prefix = parsed.raw_path.rstrip("/").encode()
        self.host = parsed.host_port_subcomponent or ""
        """The value of `Host` that the data source gets."""
        self._host = self.host.encode()
        self._limits = limits
        self.pool = Pool(dialler, limits)
        self.open = self.pool.open
        self.close = self.pool.close
        self.take_idle = self.pool.take_idle
        self.release = self.pool.release
        self.discard = self.pool.discard
        self.connect = self.pool.connect
        self.detach = self.pool.detach

    @property
    def connections(self) -> int:
        """The number of open connections to the data source."""
        return self.pool.connections

    async def send(
        self, request: UpstreamRequest, first: Iterable[Awaitable[None]] = ()
    ) -> UpstreamResponse:
        """Sends `request`, and returns the response once its head has arrived. Raises
        `UpstreamFailed`.

        Looks at no response before all of `first` is done; if one of them raises, the exchange is
        broken off. The caller must `finish` the response, whatever becomes of it.
        """
        connection = self.pool.take_idle()
        if connection is None:
            await eager.within_task()
            connection = await self.pool.connect()
        body_sender = self._write(connection, request)
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
            return await self._read_head(connection, request, body_sender)
        # Cancellation included: a connection with a response under way can't carry another request.
        except BaseException as error:
            self.pool.discard(connection)
            if body_sender is not None:
                await body_sender.stop()
            if not isinstance(error, _BROKEN):
                raise
            if not (connection.reused and not connection.received_any and _repeatable(request)):
                raise UpstreamNoResponse from error
        log.info("the data source had closed an idle connection: sending the request once more")
        return await self._send_again(request)

    async def _send_again(self, request: UpstreamRequest) -> UpstreamResponse:
        connection = await self.pool.connect()
        try:
            # Only a request without a body is repeated, so nothing has to send one.
            self._write(connection, request)
            response = await self._read_head(connection, request, None)
        except BaseException as error:
            self.pool.discard(connection)
            if isinstance(error, _BROKEN):
                raise UpstreamNoResponse from error
            raise
        response.retries = 1
        return response

    def _write(self, connection: UpstreamConnection, request: UpstreamRequest) -> BodySender | None:
        connection.expect(body=request.method != "HEAD")
        try:
            connection.write(self.head(request) + _encoded_body(request))
        except BaseException as error:
            self.pool.discard(connection)
            if isinstance(error, _BROKEN):
                raise UpstreamNoResponse(
                    "the data source closed the connection before it got the request"
                ) from error
            raise
        if request.stream is None:
            return None
        return BodySender(request.stream, connection, self._limits, chunked=request.chunked)

    async def _read_head(
        self,
        connection: UpstreamConnection,
        request: UpstreamRequest,
        body_sender: BodySender | None,
    ) -> UpstreamResponse:
        while True:
            message, stream = await connection.read()
            # Interim responses are not relayed (proxy.md A1). A 101 here was never asked for.
            if message.code >= 200 or message.code == 101:
                head = _response_head(request.method, message)
                seconds = self._limits.stream_idle_seconds
                return UpstreamResponse(self.pool, connection, body_sender, head, stream, seconds)

    def post(
        self, connection: UpstreamConnection, data: bytes, interceptor: ResponseInterceptor
    ) -> None:
        """Sends a whole request on an idle connection. The response goes to `interceptor`; if that
        doesn't take it, call `receive`."""
        connection.expect(body=True)
        connection.interceptor = interceptor
        connection.write(data)

    def path(self, request: UpstreamRequest) -> str:
        """The target on the request line to the data source."""
        return self._prefix.decode() + request.target

    def head(self, request: UpstreamRequest) -> bytes:
        """The head of `request` as it is sent."""
        front = self.front(request.method, request.target)
        frame = framing(request.length, chunked=request.chunked)
        return b"%b%b%b\r\n" % (front, request.lines, frame)

    def front(self, method: str, target: str) -> bytes:
        """The first two lines of a head: the request line, and the data source's own `Host`."""
        line = method.encode(), self._prefix, target.encode(), self._host
        return b"%b %b%b HTTP/1.1\r\nHost: %b\r\n" % line


def _repeatable(request: UpstreamRequest) -> bool:
    """Whether the request may be sent twice (RFC 9110 section 9.2.2)."""
    return request.method in ("GET", "HEAD") and request.stream is None and not request.body


def _encoded_body(request: UpstreamRequest) -> bytes:
    if not request.chunked or request.stream is not None:
        return request.body
    body = request.body
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"


def _response_head(method: str, message: RawResponseMessage) -> UpstreamHead:
    fields = sort_response_fields(message.raw_headers)
    length = _framed_length(message.code, fields.lengths, fields.codings)
    # Such a response has no body, whatever its framing says (RFC 9112 section 6.3).
    empty = method == "HEAD" or message.code in (204, 304)
    return UpstreamHead(message.code, message.reason or "", fields.forward, length, empty)


def _framed_length(status: int, lengths: Sequence[bytes], codings: Sequence[bytes]) -> bytes | None:
    """The value of `Content-Length`; None if the body ends with its last chunk or with the
    connection. Raises one of `_BROKEN` if the framing is ambiguous."""
    if status == 101:
        raise aiohttp.ClientPayloadError("the response is an upgrade that was not asked for")
    # Two readers could disagree about where such a response ends (response smuggling).
    if codings and (lengths or [coding.lower() for coding in codings] != [b"chunked"]):
        raise aiohttp.ClientPayloadError(
            "the response's transfer coding is not `chunked`, or it has a length too"
        )
    if len(lengths) > 1:
        raise aiohttp.ClientPayloadError("the response states its length twice")
    return lengths[0] if lengths else None
