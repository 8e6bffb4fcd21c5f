"""The connections to one data source: writes a request as given, reads an answer as sent.

aiohttp's connector opens and verifies the connections, its parser reads the answers. The request is
written here rather than by `ClientSession`, which would rewrite the target, merge fields that
differ only in case, invent fields, follow redirects, keep cookies, read proxy settings from the
environment, inflate bodies and send a request a second time on its own (proxy.md 0 facts 1 to 3,
A1). What may do harm twice is sent once.

Knows no policy and no protocol above HTTP.
"""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import NamedTuple

import aiohttp
from aiohttp import StreamReader
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from sidecar.http.headers import sort_response_fields
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import Unanswered
from sidecar.proxy.upstream.body_sender import BodySender
from sidecar.proxy.upstream.dialler import Dialler
from sidecar.proxy.upstream.pool import Pool, Short, UpstreamConnection
from sidecar.proxy.upstream.response import UpstreamResponse

log = logging.getLogger(__name__)

_BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError)


class UpstreamRequest(NamedTuple):
    """A request to the data source.

    `lines` are its header fields, each with its line end, but for those that frame it: `length` is
    the value of `Content-Length`, None where there is none, `chunked` whether the body is sent in
    chunks. `body` is a body that is at hand, `stream` the reader of one that is not.
    """

    method: str
    target: str
    lines: bytes
    length: bytes | None = None
    chunked: bool = False
    body: bytes = b""
    stream: StreamReader | None = None
    upgrade: bool = False
    """Whether it asks for WebSocket."""

    def with_body(self, body: bytes) -> "UpstreamRequest":
        """The same request with another body, at hand."""
        length = None if self.chunked else b"%d" % len(body)
        return self._replace(body=body, length=length, stream=None)


def framing(length: bytes | None, *, chunked: bool) -> bytes:
    """The line of a head that says how its body is framed, empty where nothing does."""
    if length is not None:
        return b"Content-Length: %b\r\n" % length
    return b"Transfer-Encoding: chunked\r\n" if chunked else b""


class UpstreamClient:
    """The data source at `url`, with an optional path prefix; `dialler` opens its connections."""

    def __init__(self, url: str, dialler: Dialler, limits: ProxyLimits) -> None:
        parsed = URL(url)
        self._prefix = parsed.raw_path.rstrip("/").encode()
        self.host = parsed.host_port_subcomponent or ""
        """The value of `Host` that the data source gets."""
        self._host = self.host.encode()
        self._limits = limits
        self._pool = Pool(dialler, limits)
        self.open = self._pool.open
        self.close = self._pool.close
        self.resting = self._pool.resting
        self.give_back = self._pool.give_back
        self.discard = self._pool.discard
        self.connect = self._pool.connect
        self.tunnel = self._pool.tunnel

    @property
    def connections(self) -> int:
        """How many to the data source are open."""
        return self._pool.connections

    async def send(
        self, ask: UpstreamRequest, first: Iterable[Awaitable[None]] = ()
    ) -> UpstreamResponse:
        """Sends `ask`; the answer once its head is there. `UpstreamFailed` where there is none.

        What comes back is not looked at before all of `first` is done; what one of them raises
        breaks the exchange off. The caller must `finish` it, whatever becomes of it.
        """
        wire = self._pool.resting()
        if wire is None:
            wire = await self._pool.connect()
        return await self.received(wire, ask, first, self._sent(wire, ask))

    async def received(
        self,
        wire: UpstreamConnection,
        ask: UpstreamRequest,
        first: Iterable[Awaitable[None]],
        pump: BodySender | None = None,
    ) -> UpstreamResponse:
        """The answer to `ask`, which was sent on `wire`; as `send`.

        A connection that rested may have been closed by the data source while the request was on
        its way. Where that is all that can have happened, and asking twice does no harm, it is
        asked once more, on a new connection (RFC 9112 section 9.3.1).
        """
        try:
            for each in first:
                await each
            return await self._answered(wire, ask, pump)
        except BaseException as error:
            self._pool.discard(wire)
            if pump is not None:
                await pump.stop()
            if not isinstance(error, _BROKEN):
                raise
            if not (wire.reused and not wire.heard and _harmless(ask)):
                raise Unanswered from error
        log.info("a request is sent once more: the data source had closed the connection")
        return await self._again(ask)

    async def _again(self, ask: UpstreamRequest) -> UpstreamResponse:
        wire = await self._pool.connect()
        try:
            self._sent(wire, ask)
            exchange = await self._answered(wire, ask, None)
        except BaseException as error:
            self._pool.discard(wire)
            if isinstance(error, _BROKEN):
                raise Unanswered from error
            raise
        exchange.retries = 1
        return exchange

    def _sent(self, wire: UpstreamConnection, ask: UpstreamRequest) -> BodySender | None:
        wire.expect(body=ask.method != "HEAD")
        try:
            wire.write(self.head(ask) + _body(ask))
        except BaseException as error:
            self._pool.discard(wire)
            if isinstance(error, _BROKEN):
                raise Unanswered("the data source takes no request") from error
            raise
        if ask.stream is None:
            return None
        return BodySender(ask.stream, wire, self._limits, chunked=ask.chunked)

    async def _answered(
        self, wire: UpstreamConnection, ask: UpstreamRequest, pump: BodySender | None
    ) -> UpstreamResponse:
        while True:
            message, stream = await wire.read()
            # Interim answers are not relayed (proxy.md A1); `101` nobody here asked for.
            if message.code >= 200 or message.code == 101:
                return self._answer(wire, pump, ask.method, message, stream)

    def post(self, wire: UpstreamConnection, data: bytes, short: Short) -> None:
        """Sends a whole request on a connection that rested. What comes back is `short`'s, or where
        that does not take it to be had by `received`."""
        wire.expect(body=True)
        wire.short = short
        wire.write(data)

    def path(self, ask: UpstreamRequest) -> str:
        """The target on the request line to the data source."""
        return self._prefix.decode() + ask.target

    def _answer(
        self,
        wire: UpstreamConnection,
        pump: BodySender | None,
        method: str,
        message: RawResponseMessage,
        stream: StreamReader,
    ) -> UpstreamResponse:
        head = sort_response_fields(message.raw_headers)
        length = _framed(message.code, head.lengths, head.codings)
        empty = method == "HEAD" or message.code in (204, 304)
        return UpstreamResponse(
            self._pool,
            wire,
            pump,
            message.code,
            message.reason or "",
            head.forward,
            length,
            empty,
            stream,
            self._limits.stream_idle_seconds,
        )

    def head(self, ask: UpstreamRequest) -> bytes:
        """The head of `ask` as it is sent."""
        front = self.front(ask.method, ask.target)
        return b"%b%b%b\r\n" % (front, ask.lines, framing(ask.length, chunked=ask.chunked))

    def front(self, method: str, target: str) -> bytes:
        """The first lines of a head: the request line, and the data source's own `Host`."""
        line = method.encode(), self._prefix, target.encode(), self._host
        return b"%b %b%b HTTP/1.1\r\nHost: %b\r\n" % line


def _harmless(ask: UpstreamRequest) -> bool:
    """Whether the data source may be asked this twice (RFC 9110 section 9.2.2)."""
    return ask.method in ("GET", "HEAD") and ask.stream is None and not ask.body


def _body(ask: UpstreamRequest) -> bytes:
    if not ask.chunked or ask.stream is not None:
        return ask.body
    body = ask.body
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"


def _framed(status: int, lengths: Sequence[bytes], codings: Sequence[bytes]) -> bytes | None:
    """The answer's length, None where the end of the body tells. Raises what is `_BROKEN`."""
    if status == 101:
        raise aiohttp.ClientPayloadError("an upgrade that nobody asked for")
    if codings and (lengths or [coding.lower() for coding in codings] != [b"chunked"]):
        raise aiohttp.ClientPayloadError("the answer's transfer coding is not `chunked`")
    if len(lengths) > 1:
        raise aiohttp.ClientPayloadError("the answer states its length twice")
    return lengths[0] if lengths else None
