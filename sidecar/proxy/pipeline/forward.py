"""Sends an allowed request to the data source, signed if its protocol signs requests, relays the
response, and records what was returned.

A retrieval is sent while its record is on the way to the disk, but no byte of the response reaches
the agent before the record is there. Decides nothing.

The handshake of a WebSocket is decided like any retrieval, and the two connections are joined once
the data source has answered 101. Until then, no byte that follows the request reaches the data
source (Pingora CVE-2026-2833). Frames aren't read; whether the connection may go on is asked again
every second.
"""

import asyncio
from collections.abc import Callable

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import RequestHead, decode_fields, encode_fields
from sidecar.http.messages.body import ConnectionLost
from sidecar.http.messages.chunks import BadTrailers
from sidecar.http.messages.response_head import SWITCHING
from sidecar.http.request_body import BodyTooSlow
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import (
    FetchedResponse,
    OutgoingRequest,
    RouteClass,
    SourceProtocol,
    SourceRef,
)
from sidecar.proxy.connections import take_over
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages import request_reader
from sidecar.proxy.messages.request_reader import switching_head
from sidecar.proxy.messages.response_relay import RelayedResponse, relay
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.lasting import (
    NoLongerAllowed,
    TunnelResult,
    judge_again,
    judged_again,
    run_tunnel,
)
from sidecar.proxy.pipeline.lineage import COMPLETED, FAILED, TRUNCATED, LineageRecorder
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.pipeline.response_inspector import (
    ResponseInspector,
    decision_fields,
    read_response,
)
from sidecar.proxy.proxy_metrics import ProxyMetrics, UpstreamNoResponse
from sidecar.proxy.upstream.client import UpstreamClient, UpstreamRequest
from sidecar.proxy.upstream.exchange import UpstreamResponse
from sidecar.proxy.worker_thread import WorkerThread
from sidecar.recorder import RecordedDecision
from sidecar.spool.errors import SpoolError


class UpstreamSender:
    """Sends to `upstream`."""

    def __init__(
        self, protocol: SourceProtocol, upstream: UpstreamClient, limits: ProxyLimits
    ) -> None:
        self.upstream = upstream
        self.protocol = protocol
        self._limits = limits

    async def fetch(self, head: RequestHead, target: str) -> FetchedResponse:
        """Sends a GET for `target` with the agent's credentials, for the sidecar itself to read."""
        lookup = request_reader.lookup_request(head, target)
        response = await self.upstream.send(await self.signed(lookup))
        try:
            return await read_response(response, self._limits)
        finally:
            await response.finish()

    async def signed(self, upstream_request: UpstreamRequest) -> UpstreamRequest:
        """Return the request as it is sent, with its signature if the protocol signs requests."""
        if not self.protocol.signs_requests:
            return upstream_request
        # The body is part of the signature, unless it is still arriving.
        streaming = upstream_request.stream is not None
        outgoing = OutgoingRequest(
            upstream_request.method,
            self.upstream.host,
            self.upstream.path(upstream_request),
            decode_fields(upstream_request.lines),
            None if streaming else upstream_request.body,
        )
        return upstream_request._replace(lines=encode_fields(await self.protocol.sign(outgoing)))


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


class Forwarder:
    """Forwards to one data source."""

    def __init__(
        self,
        protocol: SourceProtocol,
        sender: UpstreamSender,
        authorizer: Authorizer,
        lineage: LineageRecorder,
        metrics: ProxyMetrics,
        limits: ProxyLimits,
        worker: WorkerThread,
    ) -> None:
        self._protocol = protocol
        self.sender = sender
        self._upstream = sender.upstream
        self._authorizer = authorizer
        self.lineage = lineage
        self.metrics = metrics
        self._limits = limits
        self.worker = worker
        self._inspector = ResponseInspector(authorizer, limits, worker)

    async def forward(
        self, request: HttpRequest, allowed: AllowedRequest
    ) -> LocalResponse | ResponseSent:
        """Forwards `allowed` and answers `request` with the response."""
        route, _, upstream_request, _, _, decisions, started, _ = allowed
        relayed = RelayedResponse()
        outcome: str | None = FAILED
        identify = None
        if route.before_forward is not None:
            route.before_forward(self._protocol)
        try:
            try:
                if route.response_source is not None:
                    # Before the request is sent: it returns the function that reads the response.
                    identify = route.response_source(self._protocol, allowed.routed)
                if self._protocol.signs_requests and not upstream_request.upgrade:
                    upstream_request = await self.sender.signed(upstream_request)
                # Sent before the record is on disk. If the record is lost, this raises, and the
                # response is dropped.
                durable = [recorded.durable for recorded in decisions]
                response = await self._upstream.send(upstream_request, durable)
                sent = await self._relay(request, allowed, response, identify, relayed)
                outcome = relayed.outcome or COMPLETED
                return sent
            except UpstreamFailed as error:
                failure = error
            if relayed.started:
                # The agent has part of the response. The missing end shows that it isn't complete.
                outcome = TRUNCATED
            else:
                relayed.outcome = FAILED
            failed = await self._failed(request, decisions, failure, relayed)
            if isinstance(failed, LocalResponse):
                return failed.in_format_of(self._protocol, allowed.routed)
            return failed
        except SpoolError:
            # The agent got nothing, and there may be no event for the lineage to refer to.
            outcome = None
            raise
        except (asyncio.CancelledError, ConnectionError):
            outcome = relayed.outcome or TRUNCATED
            raise
        finally:
            # Whatever became of the request, it may have changed what names mean.
            if route.after_forward is not None:
                route.after_forward(self._protocol)
            if route.route_class is RouteClass.RETRIEVE and outcome is not None:
                self.lineage.note(decisions, relayed, outcome, started)

    async def _relay(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        response: UpstreamResponse,
        identify: Callable[[bytes], SourceRef | None] | None,
        relayed: RelayedResponse,
    ) -> ResponseSent:
        """Relays the response in the way that the route asks for, and finishes it."""
        authorizer, seconds = self._authorizer, self._limits.reauthorize_seconds
        if response.message.status == SWITCHING:
            alias = self._upstream.reachability.alias
            return await run_websocket(
                request, allowed, response, authorizer, self._limits, relayed, alias
            )
        body = response.message.body
        try:
            if self.lineage.now() - allowed.started > seconds:
                await judge_again(allowed, authorizer, response)
            with judged_again(request, allowed, body, authorizer, seconds):
                return await self._relay_judged(request, allowed, response, identify, relayed)
        except NoLongerAllowed as error:
            if not relayed.started:
                raise error.cause from None
            relayed.outcome = TRUNCATED
            return ResponseSent(keep_alive=False, status=relayed.status)

    async def _relay_judged(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        response: UpstreamResponse,
        identify: Callable[[bytes], SourceRef | None] | None,
        relayed: RelayedResponse,
    ) -> ResponseSent:
        prepared = allowed.prepared
        if identify is not None:
            return await self._inspector.relay_verified(request, allowed, response, identify)
        if prepared.filter_response is not None or prepared.filter_event is not None:
            return await self._inspector.relay_filtered(request, allowed, response, relayed)
        try:
            if prepared.on_head is not None:
                prepared.on_head(response.message.status, response.message.fields)
            return await relay(
                request,
                response,
                decision_fields(allowed.decisions),
                relayed,
                refused_upgrade=allowed.upstream_request.upgrade,
            )
        finally:
            await response.finish()

    async def _failed(
        self,
        request: HttpRequest,
        decisions: list[RecordedDecision],
        error: UpstreamFailed,
        relayed: RelayedResponse,
    ) -> LocalResponse | ResponseSent:
        # A body that the agent broke off is no failure of the data source.
        if request.body.failure is None:
            self.metrics.count_failure(error)
        if relayed.started:
            return ResponseSent(keep_alive=False, status=relayed.status)
        # Not even a 502 leaves before the record is on disk.
        for recorded in decisions:
            await recorded.durable
        relayed.status = error.status
        event, broken = decision_fields(decisions), request.body.failure
        if broken is None:
            return LocalResponse.of_error(error, event=event, close=not request.body.complete)
        if not isinstance(broken, (BodyTooSlow, BadTrailers)):
            broken = Malformed("the body's framing is broken")
        return LocalResponse.of_error(broken, event=event, close=True)
