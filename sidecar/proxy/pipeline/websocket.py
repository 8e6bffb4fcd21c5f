"""WebSocket connections: the handshake is decided like any retrieval, and the two connections are
joined once the data source has answered 101. Until then, no byte that follows the request reaches
the data source (Pingora CVE-2026-2833).

Frames aren't read. Whether the connection may go on is asked again every second. Knows handshakes
and connections. Leaves the decision to its caller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sidecar.http.headers import Fields
from sidecar.http.messages.disconnects import ConnectionLost
from sidecar.http.messages.response_head import SWITCHING
from sidecar.http.server.request import HttpRequest
from sidecar.proxy.connections.buffered_connection import take_over
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.proxy.messages.upgrade import switching_head
from sidecar.proxy.pipeline.tunnel_session import TunnelResult, run_tunnel
from sidecar.proxy.proxy_metrics import UpstreamNoResponse
from sidecar.proxy.upstream.client import UpstreamClient, UpstreamRequest
from sidecar.proxy.upstream.response import UpstreamResponse


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
        first: Sequence[asyncio.Future[None]],
        event: Fields,
        relayed: RelayedResponse,
    ) -> UpstreamResponse | None:
        """Runs the WebSocket to its end and returns None; returns the response instead if the data
        source answers something other than 101. The agent gets nothing before all of `first` is
        done."""
        response = await self._upstream.send(upstream_request, first)
        if response.message.status != SWITCHING:
            return response
        try:
            request.start_response(switching_head(response.message, event))
            relayed.begin(response)
            agent, _ = take_over(request, self._limits.buffer_bytes)
            source = response.detach()
        except BaseException as error:
            await response.finish()
            if isinstance(error, ConnectionLost):
                raise UpstreamNoResponse from error
            raise

        def done(result: TunnelResult) -> None:
            relayed.record_tunnel(result.outcome, result.down, result.sha256)

        await run_tunnel(agent, source, self._limits, self._reauthorize, done, set())
        return None
