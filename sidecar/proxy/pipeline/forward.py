"""Sends an allowed request to the data source, relays the response, and records what was returned.

A retrieval is sent while its record is on the way to the disk, but no byte of the response reaches
the agent before the record is there. Knows that order. Decides nothing.
"""

import asyncio

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import RequestHead, decode_fields, encode_fields
from sidecar.http.request_body import BodyTooSlow
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.protocols.messages import FetchedResponse, OutgoingRequest
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import RouteClass
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import Fields, LocalResponse
from sidecar.proxy.messages import request_reader
from sidecar.proxy.messages.response_relay import RelayedResponse, relay
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.lineage import COMPLETED, FAILED, TRUNCATED, LineageRecorder
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.pipeline.response_inspector import (
    ResponseInspector,
    decision_fields,
    durable,
    read_response,
)
from sidecar.proxy.pipeline.websocket import WebSocket
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.proxy.upstream.client import UpstreamClient, UpstreamRequest
from sidecar.proxy.upstream.response import UpstreamResponse
from sidecar.proxy.worker_thread import WorkerThread
from sidecar.spool.errors import SpoolError


class Forwarder:
    """Forwards to one data source."""

    def __init__(
        self,
        protocol: SourceProtocol,
        upstream: UpstreamClient,
        authorizer: Authorizer,
        lineage: LineageRecorder,
        metrics: ProxyMetrics,
        limits: ProxyLimits,
        worker: WorkerThread,
    ) -> None:
        self._protocol = protocol
        self.upstream = upstream
        self._authorizer = authorizer
        self.lineage = lineage
        self.metrics = metrics
        self._limits = limits
        self.worker = worker
        self._inspector = ResponseInspector(authorizer, limits, worker)

    async def fetch(self, head: RequestHead, target: str) -> FetchedResponse:
        """Sends a GET for `target` with the agent's credentials, for the sidecar itself to read."""
        response = await self._send(request_reader.lookup_request(head, target), [])
        try:
            return await read_response(response, self._limits)
        finally:
            await response.finish()

    async def forward(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
    ) -> LocalResponse | ResponseSent:
        """Forwards `allowed` and answers `request` with the response."""
        route = allowed.route
        relayed = RelayedResponse()
        outcome: str | None = FAILED
        if route.before_forward is not None:
            route.before_forward(self._protocol)
        try:
            sent = await self._relay(request, allowed, relayed)
            outcome = relayed.outcome or COMPLETED
            return sent
        except UpstreamFailed as error:
            # A body that the agent broke off is no failure of the data source.
            if request.body.failure is None:
                self.metrics.count_failure(error)
            if relayed.started:
                # The agent has part of the response. The missing end shows that it isn't complete.
                outcome = TRUNCATED
                return ResponseSent(keep_alive=False, status=relayed.status)
            # Not even a 502 leaves before the record is on disk.
            for recorded in allowed.decisions:
                await recorded.durable
            relayed.status = error.status
            return _failure(request, error, decision_fields(allowed.decisions))
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
                self.lineage.note(allowed.decisions, relayed, outcome, allowed.started)

    async def _relay(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        relayed: RelayedResponse,
    ) -> ResponseSent:
        """Relays the response in the way that the route asks for."""
        prepared, shows = allowed.prepared, allowed.route.response_source
        if allowed.upstream_request.upgrade:
            return await self._upgrade(request, allowed, relayed)
        if shows is not None:
            # Called before the request is sent: it returns the function that reads the response.
            identify = shows(self._protocol, allowed.routed)
            response = await self._send(allowed.upstream_request, durable(allowed.decisions))
            return await self._inspector.relay_verified(request, allowed, response, identify)
        first = durable(allowed.decisions)
        if prepared.filter_response is not None or prepared.filter_event is not None:
            response = await self._send(allowed.upstream_request, first)
            return await self._inspector.relay_filtered(request, allowed, response, relayed)
        # Sent before the record is on disk. If the record is lost, the response is dropped.
        response = await self._send(allowed.upstream_request, first)
        try:
            if prepared.on_head is not None:
                prepared.on_head(response.message.status, response.message.fields)
            return await relay(request, response, decision_fields(allowed.decisions), relayed)
        finally:
            await response.finish()

    async def _send(
        self,
        upstream_request: UpstreamRequest,
        first: list[asyncio.Future[None]],
    ) -> UpstreamResponse:
        """Sends the request. Returns once all of `first` are done and the head of the response is
        there."""
        if self._protocol.signs_requests:
            # The body is part of the signature, unless it is still arriving.
            streaming = upstream_request.stream is not None
            outgoing = OutgoingRequest(
                upstream_request.method,
                self.upstream.host,
                self.upstream.path(upstream_request),
                decode_fields(upstream_request.lines),
                None if streaming else upstream_request.body,
            )
            lines = encode_fields(await self._protocol.sign(outgoing))
            upstream_request = upstream_request._replace(lines=lines)
        return await self.upstream.send(upstream_request, first)

    async def _upgrade(
        self, request: HttpRequest, allowed: AllowedRequest, relayed: RelayedResponse
    ) -> ResponseSent:
        event = decision_fields(allowed.decisions)

        async def reauthorize() -> None:
            await self._authorizer.reauthorize(allowed.sources, allowed.routed.attribution)

        websocket = WebSocket(self.upstream, self._limits, reauthorize)
        response = await websocket.run(
            request, allowed.upstream_request, durable(allowed.decisions), event, relayed
        )
        # The upgrade was granted. The connection now never carries HTTP again.
        if response is None:
            return ResponseSent(keep_alive=False, status=101)
        try:
            return await relay(request, response, event, relayed)
        finally:
            await response.finish()


def _failure(request: HttpRequest, error: UpstreamFailed, event: Fields) -> LocalResponse:
    fault = request.body.failure
    if fault is not None:
        # The agent's own body failed, not the data source.
        if not isinstance(fault, BodyTooSlow):
            fault = Malformed("the body's framing is broken")
        return LocalResponse.of_error(fault, event=event, close=True)
    return LocalResponse.of_error(error, event=event, close=not request.body.complete)
