"""WebSocket connections: the handshake is decided like any retrieval, and the two connections are
joined once the data source has answered 101. Until then, no byte that follows the request reaches
the data source (Pingora CVE-2026-2833).

Frames aren't read. Whether the connection may go on is asked again every second. Knows handshakes
and connections.
"""

from sidecar.http.messages.disconnects import ConnectionLost
from sidecar.http.messages.response_head import SWITCHING
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.proxy.connections.buffered_connection import take_over
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.proxy.messages.upgrade import switching_head
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.pipeline.response_inspector import decision_fields
from sidecar.proxy.pipeline.tunnel_session import TunnelResult, run_tunnel
from sidecar.proxy.proxy_metrics import UpstreamNoResponse
from sidecar.proxy.upstream.response import UpstreamResponse


async def run_websocket(
    request: HttpRequest,
    allowed: AllowedRequest,
    response: UpstreamResponse,
    authorizer: Authorizer,
    limits: ProxyLimits,
    relayed: RelayedResponse,
    alias: str,
) -> ResponseSent:
    """Runs a WebSocket to its end, for a `response` of the data source `alias` that grants it."""
    try:
        event = decision_fields(allowed.decisions)
        request.start_response(switching_head(response.message, event, alias))
        relayed.begin(response)
        agent, _ = take_over(request, limits.buffer_bytes)
        source = response.detach()
    except BaseException as error:
        await response.finish()
        if isinstance(error, ConnectionLost):
            raise UpstreamNoResponse(
                f"the data source `{alias}` closed the connection with its 101"
            ) from error
        raise

    async def reauthorize() -> None:
        await authorizer.reauthorize(allowed.sources, allowed.routed.attribution)

    def done(result: TunnelResult) -> None:
        relayed.record_tunnel(result.outcome, result.down, result.sha256)

    await run_tunnel(agent, source, limits, reauthorize, done, set())
    # The connection now never carries HTTP again.
    return ResponseSent(keep_alive=False, status=SWITCHING)
