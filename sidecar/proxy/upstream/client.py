"""Sends requests to one data source exactly as given, and reads its responses as they were sent: no
target is rewritten, no field merged or invented, no redirect followed, no cookie kept, no body
inflated (`proxy/RULES.md`, One form and Relaying). A request that could do harm if repeated is sent
only once.

Logs when the data source can't be reached, with the cause, and when it answers again. The agent is
told the source's alias; the address and the cause are for the log alone.

Knows no policy and no protocol above HTTP.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from policies.ground.errors import numbered
from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.http.client.connection import Pool
from sidecar.http.client.dialler import Dialler
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.chunks import LAST_CHUNK, TrailerHead, encode_chunk
from sidecar.http.messages.response_parser import BadResponse
from sidecar.proxy.connections import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import UpstreamNoResponse, UpstreamUnreachable, UpstreamUnverified
from sidecar.proxy.upstream.exchange import BROKEN, BodySender, UpstreamResponse

log = logging.getLogger(__name__)

Connected = TypeVar("Connected")

_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)


class Reachability:
    """Logs when the data source `alias`, at `address`, can't be reached and when it answers again.
    `monotonic` is a clock in seconds."""

    def __init__(self, alias: str, address: str, monotonic: Callable[[], float]) -> None:
        self.alias = alias
        self._state = RepeatingOutageLogger(
            log,
            f"data source `{alias}` at `{address}` can't be reached",
            f"data source `{alias}` answers again",
            monotonic,
        )

    async def connected(self, connecting: Awaitable[Connected]) -> Connected:
        """Await a connection that a dialler or a pool opens, and return it. A failure is logged.
        Raises `UpstreamUnverified` if TLS fails, `UpstreamUnreachable` for any other failure."""
        try:
            return await connecting
        except ssl.SSLError as error:
            self._state.failing(cause(error))
            raise UpstreamUnverified(f"the data source `{self.alias}` can't be verified") from error
        except OSError as error:
            self._state.failing(cause(error))
            raise UpstreamUnreachable(f"the data source `{self.alias}` can't be reached") from error

    def answered(self) -> None:
        """Note that the data source has answered, which ends an outage in the log. Costs next to
        nothing while there is no outage."""
        if self._state.ongoing:
            self._state.recovered()


class TunnelDialler:
    """Opens connections for tunnels. A tunnel's bytes are not read, so the data source counts as
    answering once it is connected. Call `free` when a connection has ended, so that another one may
    be opened."""

    def __init__(self, dialler: Dialler[BufferedConnection], reachability: Reachability) -> None:
        self._dialler = dialler
        self._reachability = reachability
        self.free = dialler.free

    async def connect(self) -> BufferedConnection:
        """Open a connection. Raises `UpstreamUnverified` or `UpstreamUnreachable`."""
        connection = await self._reachability.connected(self._dialler.connect())
        self._reachability.answered()
        return connection


def cause(error: OSError) -> str:
    """Return, in words for the log, why no connection could be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        if error.errno in _NO_SUCH_NAME:
            return "its name is not found"
        return f"its name can't be resolved: {(error.strerror or str(error)).lower()}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "the connection timed out"
    # Without the loop's own text, which repeats the address.
    return str(error) if error.errno is None else numbered(error.errno)


class UpstreamRequest(NamedTuple):
    """A request to the data source.

    `lines` are its encoded header fields, each with its line end, without those that frame the
    body: `length` is the value of `Content-Length`, if any, and `chunked` says whether the body is
    sent in chunks. `body` holds the bytes of a body that has arrived, `stream` is the reader of one
    that is still arriving.
    """

    method: str
    target: str
    lines: bytes
    length: bytes | None = None
    chunked: bool = False
    body: bytes = b""
    stream: BodyStream | None = None
    upgrade: bool = False
    """True if the request asks to switch to another protocol."""
    last_chunk: bytes = LAST_CHUNK
    """The end of a chunked body that has arrived: the last chunk and the trailers."""
    trailers: TrailerHead | None = None
    """The head's fields about the trailers of `stream`, if trailers are forwarded; otherwise
    None."""

    def with_body(self, body: bytes) -> "UpstreamRequest":
        """Return the same request with `body`, all of it, in place of its own body."""
        length = None if self.chunked else b"%d" % len(body)
        return self._replace(
            body=body, length=length, stream=None, last_chunk=LAST_CHUNK, trailers=None
        )


class UpstreamClient:
    """Sends requests to one data source over the connections of `pool`. `host` is the value of the
    header `Host`; `prefix` comes before each target. `reachability` is told whether the data source
    can be reached."""

    def __init__(
        self,
        host: str,
        prefix: str,
        pool: Pool,
        limits: ProxyLimits,
        reachability: Reachability,
    ) -> None:
        self.reachability = reachability
        self.host = host
        self._prefix = prefix
        self._host_line = f" HTTP/1.1\r\nHost: {host}\r\n".encode()
        self._limits = limits
        self.pool = pool
        self.close = pool.close

    @property
    def connections(self) -> int:
        return self.pool.connections

    async def send(
        self, request: UpstreamRequest, first: Sequence[asyncio.Future[None]] = ()
    ) -> UpstreamResponse:
        """Send `request`, and return the response once its head has arrived. Raises
        `UpstreamFailed`.

        The response is not looked at before all futures of `first` are done (records on their way
        to the disk); if one of them raises, the exchange is broken off. The caller must always
        `finish` the response.
        """
        retries = 0
        while True:
            connection = None if retries else self.pool.take_idle()
            if connection is None:
                connection = await self.reachability.connected(self.pool.connect())
            sender = response = None
            try:
                connection.send(
                    self._encode(request), to_head=request.method == "HEAD", upgrade=request.upgrade
                )
                if request.stream is not None:
                    sender = BodySender(
                        request.stream,
                        connection,
                        self._limits,
                        chunked=request.chunked,
                        trailers=request.trailers,
                    )
                for each in first:
                    await each
                message = connection.arrived or await connection.response()
                self.reachability.answered()
                if isinstance(message.body.failure, BadResponse):
                    # The agent got nothing of it yet, so it can still get an error.
                    raise message.body.failure
                response = UpstreamResponse(
                    message, self.pool, connection, sender, self._limits, retries
                )
                return response
            except BROKEN as error:
                # The data source may have closed an idle connection while the request was on its
                # way. Only if that is all that can have happened, and sending twice does no harm,
                # the request is sent once more (RFC 9112 section 9.3.1).
                unheard = connection.reused and not connection.received_any
                if retries or not (unheard and _repeatable(request)):
                    raise UpstreamNoResponse(
                        f"the data source `{self.reachability.alias}` sent no response that can be "
                        "read"
                    ) from error
            finally:
                # After a cancellation too: a connection with a response under way can't carry
                # another request.
                if response is None:
                    self.pool.discard(connection)
                    if sender is not None:
                        await sender.stop()
            log.info("the data source had closed an idle connection: sending the request once more")
            retries = 1

    def path(self, request: UpstreamRequest) -> str:
        """Return the target as it is written on the request line to the data source."""
        return self._prefix + request.target

    def _encode(self, request: UpstreamRequest) -> bytes:
        method, target, lines, length, chunked, body, stream, _, last_chunk, _ = request
        line = f"{method} {self._prefix}{target}".encode()
        framing = b"" if length is None else b"Content-Length: %b\r\n" % length
        if chunked:
            framing = b"Transfer-Encoding: chunked\r\n"
            if stream is None:
                body = encode_chunk(body) + last_chunk
        return b"%b%b%b%b\r\n%b" % (line, self._host_line, lines, framing, body)


def _repeatable(request: UpstreamRequest) -> bool:
    """Return whether the request may safely be sent twice: a GET or HEAD without a body (RFC 9110
    section 9.2.2)."""
    return request.method in ("GET", "HEAD") and request.stream is None and not request.body
