"""WebSocket connections: the handshake is decided like any retrieval, and the two connections are
joined once the data source has answered 101. Until then, no byte that follows the request reaches
the data source (Pingora CVE-2026-2833).

Frames aren't read. Whether the connection may go on is asked again every second. Knows handshakes
and connections. Leaves the decision to its caller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import aiohttp

from sidecar.http.headers import Fields
from sidecar.http.server.request import HttpRequest
from sidecar.platform import eager
from sidecar.proxy.connections.buffered_connection import take_over
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.proxy.messages.upgrade import UPGRADE_LINES, switching_head
from sidecar.proxy.pipeline.tunnel_session import TunnelResult, run_tunnel
from sidecar.proxy.proxy_metrics import UpstreamNoResponse
from sidecar.proxy.upstream.client import UpstreamClient, UpstreamRequest
from sidecar.proxy.upstream.connection import UpstreamConnection
from sidecar.proxy.upstream.response import UpstreamResponse

LONGEST_HEAD = 16 * 1024
"""The longest head of a 101 response, in bytes."""

_SWITCHING = b"HTTP/1.1 101"


class WebSocket:
    """One WebSocket to the data source of `upstream`. `reauthorize` raises `Denied` when the
    WebSocket is no longer allowed."""

    def __init__(
        self,
        upstream: UpstreamClient,
        limits: ProxyLimits,
        reauthorize: Callable[[], Awaitable[None]],
    ) -> None:
        self._upstream = upstream
        self._limits = limits
        self._reauthorize = reauthorize

    async def run(
        self,
        request: HttpRequest,
        upstream_request: UpstreamRequest,
        first: Iterable[Awaitable[None]],
        event: Fields,
        relayed: RelayedResponse,
    ) -> UpstreamResponse | None:
        """Runs the WebSocket to its end and returns None; returns the response instead if the data
        source answers something other than 101. The agent gets nothing before all of `first` is
        done."""
        await eager.within_task()
        connection = await self._upstream.connect()
        try:
            handshake = Handshake(connection)
            connection.expect(body=True)
            lines = upstream_request.lines + UPGRADE_LINES
            connection.write(self._upstream.head(upstream_request._replace(lines=lines)))
            # The data source may already be answering. The agent gets nothing before the record is
            # on disk.
            for each in first:
                await each
            head = await handshake.head()
            if head is None:
                return await self._upstream.receive(connection, upstream_request, ())
            request.start_response(switching_head(head, event))
            relayed.status, relayed.started = 101, True
            agent, _ = take_over(request, self._limits.buffer_bytes)
            source = self._upstream.detach(connection, handshake.tail)
        except BaseException as error:
            self._upstream.discard(connection)
            if isinstance(error, aiohttp.ClientError):
                raise UpstreamNoResponse from error
            raise

        def done(result: TunnelResult) -> None:
            relayed.record_tunnel(result.outcome, result.down, result.sha256)

        await run_tunnel(agent, source, self._limits, self._reauthorize, done, set())
        return None


class Handshake:
    """Reads the response to a handshake sent on `connection`, before the parser sees it. The parser
    must not: what follows a 101 isn't HTTP."""

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self._read = b""
        self._head: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.tail = b""
        """The bytes that followed the head."""
        connection.interceptor = self

    async def head(self) -> bytes | None:
        """The head of the 101; None for any other response, which is left to the parser."""
        return await self._head

    def intercept(self, data: bytes) -> bool:
        self._read += data
        start = self._read[: len(_SWITCHING)]
        # The first bytes may arrive one by one, and may still become a 101.
        if _SWITCHING.startswith(start) and len(self._read) <= LONGEST_HEAD:
            end = self._read.find(b"\r\n\r\n") + 4
            if end < 4:
                # Not complete yet: ask for the next bytes too.
                self._connection.interceptor = self
                return True
            if start == _SWITCHING:
                # What follows waits in the system's buffer until the two connections are joined.
                if self._connection.transport is not None:
                    self._connection.transport.pause_reading()
                self.tail = self._read[end:]
                self._finish(self._read[:end])
                return True
        # Not a 101: the parser gets every byte from the first one on.
        whole, self._read = self._read, b""
        self._finish(None)
        self._connection.data_received(whole)
        return True

    def fall_back(self) -> None:
        # The connection was lost: `UpstreamClient.receive` then fails as for any request.
        self._finish(None)

    def _finish(self, head: bytes | None) -> None:
        if not self._head.done():
            self._head.set_result(head)
