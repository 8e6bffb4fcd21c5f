"""Sends an allowed request to the data source, relays the response, and records what was returned.

A retrieval is sent while its record is on the way to the disk, but no byte of the response reaches
the agent before the record is there. Knows that order. Decides nothing.
"""

import asyncio
from collections.abc import Callable

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.messages.response_head import SWITCHING
from sidecar.http.request_body import BodyTooSlow
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.http.trailers import BadTrailers
from sidecar.protocols.messages import SourceRef
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import RouteClass
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages.response_relay import RelayedResponse, relay
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.lasting_response import NoLongerAllowed, judge_again, judged_again
from sidecar.proxy.pipeline.lineage import COMPLETED, FAILED, TRUNCATED, LineageRecorder
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.pipeline.response_inspector import (
    ResponseInspector,
    decision_fields,
)
from sidecar.proxy.pipeline.upstream_sender import UpstreamSender
from sidecar.proxy.pipeline.websocket import run_websocket
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.proxy.upstream.response import UpstreamResponse
from sidecar.proxy.worker_thread import WorkerThread
from sidecar.recorder import RecordedDecision
from sidecar.spool.errors import SpoolError


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
