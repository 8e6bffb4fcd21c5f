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
from typing import TypeVar

from policies.ground.errors import numbered
from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.http.client.dialler import Dialler
from sidecar.http.client.pool import Pool
from sidecar.http.client.request import Origin, UpstreamRequest
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


class UpstreamClient:
    """Sends requests to one data source, at `origin`, over the connections of `pool`.
    `reachability` is told whether the data source can be reached. `switching` makes the pool for
    requests that ask to switch to another protocol, which only HTTP/1.1 can; without it, they use
    `pool` too."""

    def __init__(
        self,
        origin: Origin,
        pool: Pool,
        limits: ProxyLimits,
        reachability: Reachability,
        switching: Callable[[], Pool] | None = None,
    ) -> None:
        self.reachability = reachability
        self.host = origin.host
        self._origin = origin
        self._limits = limits
        self.pool = pool
        self._make_switching = switching
        self._switching: Pool | None = None

    def close(self) -> None:
        """Close the idle connections."""
        self.pool.close()
        if self._switching is not None:
            self._switching.close()

    @property
    def connections(self) -> int:
        """The number of open connections to the data source."""
        switching = self._switching
        return self.pool.connections + (0 if switching is None else switching.connections)

    async def send(
        self,
        request: UpstreamRequest,
        first: Sequence[asyncio.Future[None]] = (),
        *,
        repeatable: bool = False,
    ) -> UpstreamResponse:
        """Send `request`, and return the response once its head has arrived. Raises
        `UpstreamFailed`.

        The response is not looked at before all futures of `first` are done (records on their way
        to the disk); if one of them raises, the exchange is broken off. `repeatable` says that the
        request changes nothing at the data source. The caller must always `finish` the response.
        """
        retries = 0
        pool = self._switching_pool() if request.upgrade else self.pool
        while True:
            connection = None if retries else pool.take()
            if connection is None:
                connection = await self.reachability.connected(pool.connect())
            sender = response = None
            try:
                connection.begin(request, self._origin)
                if request.stream is not None:
                    sender = BodySender(request.stream, connection, self._limits, request.trailers)
                for each in first:
                    await each
                message = connection.arrived or await connection.response()
                self.reachability.answered()
                if isinstance(message.body.failure, BadResponse):
                    # The agent got nothing of it yet, so it can still get an error.
                    raise message.body.failure
                response = UpstreamResponse(
                    message, pool, connection, sender, self._limits, retries
                )
                return response
            except BROKEN as error:
                # The data source may have closed an idle connection while the request was on its
                # way. Only if that is all that can have happened, and sending twice does no harm,
                # the request is sent once more (RFC 9112 section 9.3.1). One of HTTP/2 says so when
                # it has not read a request (RFC 9113 section 8.7).
                again = request.safe and connection.unheard
                held = repeatable and request.stream is None
                again = again or (held and connection.unread)
                if retries or not again:
                    raise UpstreamNoResponse(
                        f"the data source `{self.reachability.alias}` sent no response that can be "
                        "read"
                    ) from error
            finally:
                # After a cancellation too: a connection with a response under way can't carry
                # another request.
                if response is None:
                    pool.discard(connection)
                    if sender is not None:
                        await sender.stop()
            log.info("the data source did not read a request: sending it once more")
            retries = 1

    def path(self, request: UpstreamRequest) -> str:
        """Return the target as it is written on the request line to the data source."""
        return self._origin.prefix + request.target

    def _switching_pool(self) -> Pool:
        if self.pool.only_http2:
            raise UpstreamNoResponse(
                f"the data source `{self.reachability.alias}` is reached over HTTP/2 alone "
                "(`http: 2`), which has no way to switch protocols"
            )
        if self._make_switching is None:
            return self.pool
        if self._switching is None:
            self._switching = self._make_switching()
        return self._switching
