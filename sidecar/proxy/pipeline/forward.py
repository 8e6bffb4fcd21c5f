"""Sends an allowed request to the data source, signed if its protocol signs requests, relays the
response, and records what was returned.

A retrieval is sent while its record is on the way to the disk, but no byte of the response reaches
the agent before the record is there. A response that has to be read first is read whole, or event
by event. It is then either verified to describe the source that was decided about, or filtered down
to what the agent may see. Decides nothing.
"""

import asyncio
from collections.abc import Callable

from policies.ground.errors import Malformed, SluiceError, UpstreamFailed
from sidecar.http.headers import (
    refuse_encoded,
    without_whole_body_fields,
)
from sidecar.http.messages.response_parser import SWITCHING
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardedPart,
    GrpcMessage,
    ProtocolRoute,
    RouteClass,
    SourceProtocol,
    SourceRef,
)
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages.grpc_calls import (
    framed_response,
    unframed_response,
)
from sidecar.proxy.messages.response_relay import RelayedResponse, relay, write_whole
from sidecar.proxy.messages.sse import EventParser, FilteredStream, is_event_stream
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.pipeline.lineage import COMPLETED, FAILED, TRUNCATED, LineageRecorder
from sidecar.proxy.pipeline.message_stream import JudgedMessages
from sidecar.proxy.pipeline.reauthorization import (
    NoLongerAllowed,
    reauthorize_late_response,
    reauthorizing,
    run_websocket,
)
from sidecar.proxy.pipeline.request_context import AllowedRequest, decision_fields
from sidecar.proxy.pipeline.upstream_sender import UpstreamSender, read_response
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.proxy.upstream.exchange import UpstreamResponse
from sidecar.proxy.worker_thread import LONGEST_INLINE, WorkerThread, message_work
from sidecar.spool.errors import SpoolError

_REPEATABLE = (RouteClass.RETRIEVE, RouteClass.RESOLVE, RouteClass.METADATA)
"""The classes whose requests change nothing at the data source."""


class Forwarder:
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

    async def forward(
        self, request: HttpRequest, allowed: AllowedRequest
    ) -> LocalResponse | ResponseSent:
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
                client, repeatable = self.sender.client(route), route.route_class in _REPEATABLE
                response = await client.send(upstream_request, durable, repeatable=repeatable)
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
            failed = await self._failed(request, allowed, failure, relayed)
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
        """Relay the response in the way that the route asks for (unchanged, verified, filtered, or
        as a WebSocket), and finish it."""
        authorizer, seconds = self._authorizer, self._limits.reauthorize_seconds
        if response.message.status == SWITCHING:
            alias = self._upstream.reachability.alias
            return await run_websocket(
                request, allowed, response, authorizer, self._limits, relayed, alias
            )
        body = response.message.body
        try:
            if self.lineage.now() - allowed.started > seconds:
                await reauthorize_late_response(allowed, authorizer, response)
            with reauthorizing(request, allowed, body, authorizer, seconds):
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
            return await self._relay_verified(request, allowed, response, identify)
        if prepared.filter_response is not None or prepared.filter_event is not None:
            return await self._relay_filtered(request, allowed, response, relayed)
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

    async def _relay_verified(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        response: UpstreamResponse,
        identify: Callable[[bytes], SourceRef | None],
    ) -> ResponseSent:
        """Relay a response that describes a source. `identify` finds the source in it, which must
        be one that was decided about, or another allowed one: a name may have spellings that only
        the data source knows."""
        decisions = allowed.decisions
        try:
            whole = await self._read_whole(request, response, allowed.route)
        finally:
            await response.finish()
        # Only a success describes a source.
        if (described := self._successful(whole, allowed)) is not None:
            work = _work(described, allowed.route)
            source = await self.worker.call(work, identify, described.body)
            if source is None:
                raise UpstreamFailed(
                    "the data source's response does not say which source it describes"
                )
            if source not in allowed.sources:
                decisions = decisions + await self._authorizer.allow(
                    (source,), allowed.routed.attribution
                )
        for recorded in decisions:
            await recorded.durable
        return await write_whole(request, whole, decision_fields(decisions))

    async def _relay_filtered(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        response: UpstreamResponse,
        relayed: RelayedResponse,
    ) -> ResponseSent:
        """Relay only the parts of the response that the agent may see. The response is filtered as
        a whole, or, if it is an event stream, event by event."""
        prepared, event = allowed.prepared, decision_fields(allowed.decisions)
        message = response.message
        try:
            if prepared.on_head is not None:
                prepared.on_head(message.status, message.fields)
            # An error holds no documents to filter.
            if not 200 <= message.status < 300 or message.empty:
                return await relay(request, response, event, relayed)
            if prepared.filter_event is not None and is_event_stream(message.fields):
                refuse_encoded(message.fields)
                parser = EventParser(prepared.filter_event, self._limits.inspected_response_bytes)
                events = FilteredStream(parser, self.worker, allowed.refresh, prepared.on_events)
                return await relay(request, response, event, relayed, events)
            if prepared.filter_response is None:
                return await relay(request, response, event, relayed)
            relayed.retries = response.retries
            whole = await self._read_whole(request, response, allowed.route)
        finally:
            await response.finish()
        if (found := self._successful(whole, allowed)) is not None:
            whole, relayed.withheld = await self._filtered(found, allowed, prepared.filter_response)
        # A HEAD was sent as a GET, and its agent gets no body.
        if request.method != "HEAD":
            relayed.count(whole.body)
        relayed.begin(response)
        return await write_whole(request, whole, event)

    async def _filtered(
        self,
        whole: FetchedResponse,
        allowed: AllowedRequest,
        read: Callable[[FetchedResponse], ForwardedPart],
    ) -> tuple[FetchedResponse, int]:
        """Return the part of a response that the agent may see, as it is written, and the number of
        documents that were withheld."""
        fields, body, work = whole.fields, whole.body, _work(whole, allowed.route)
        # A filter in the worker thread relies on facts that must be gathered on the loop.
        if work > LONGEST_INLINE:
            allowed.refresh()
        part = await self.worker.call(work, read, whole)
        if part.body != body:
            # A validator or digest of the whole would be wrong for a part of it.
            fields = without_whole_body_fields(fields)
        whole = whole._replace(fields=fields)
        if not allowed.route.is_call:
            return whole._replace(body=part.body), part.withheld
        return framed_response(whole, part.body, _form(allowed)), part.withheld

    def _successful(
        self, whole: FetchedResponse, allowed: AllowedRequest
    ) -> FetchedResponse | None:
        """Return a successful response as a protocol reads it: of a call of gRPC, the message. None
        for a response that isn't successful."""
        if not 200 <= whole.status < 300:
            return None
        if not allowed.route.is_call:
            return whole
        most = self._limits.inspected_response_bytes
        return unframed_response(whole, most, _form(allowed))

    async def _read_whole(
        self, request: HttpRequest, response: UpstreamResponse, route: ProtocolRoute
    ) -> FetchedResponse:
        most, stated = self._limits.inspected_response_bytes, response.message.length
        await request.room(most if stated is None else min(most, int(stated)))
        if route.is_call:
            return await response.read(most)  # its reader has limits of its own
        return await read_response(response, self._limits)

    async def _failed(
        self,
        request: HttpRequest,
        allowed: AllowedRequest,
        error: UpstreamFailed,
        relayed: RelayedResponse,
    ) -> LocalResponse | ResponseSent:
        messages, decisions = allowed.upstream_request.stream, allowed.decisions
        if isinstance(messages, JudgedMessages) and messages.refusal is not None:
            if not relayed.started:
                raise messages.refusal
            messages.end_response()
            return ResponseSent(keep_alive=False, status=relayed.status)
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
        if not isinstance(broken, SluiceError):
            broken = Malformed("the body's framing is broken")
        return LocalResponse.of_error(broken, event=event, close=True)


def _form(allowed: AllowedRequest) -> bytes | None:
    """Return the form of gRPC-Web in which a call was sent; None for gRPC itself."""
    message = allowed.routed.body
    return message.form if isinstance(message, GrpcMessage) else None


def _work(whole: FetchedResponse, route: ProtocolRoute) -> int:
    """Return the work of reading a response, in bytes of JSON."""
    size = len(whole.body)
    return message_work(size) if route.is_call else size
