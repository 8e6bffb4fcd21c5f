"""Takes one request through the steps that decide about it:

    classify     read the head once, find the route; refuse what could be read in two ways
    resolve      find the set of sources it concerns, from the request alone
    authorize    decide about every source; each record goes to the spool
    forward      send exactly what was decided (`forward.py`)

Knows this order, and the policy name of each refusal. Knows nothing of bytes, policies or any data
source. The steps stay in one file, because their order is its subject.
"""

from collections.abc import Awaitable

from policies.ground.errors import Malformed, SluiceError, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.body_budget import BodyBudget
from sidecar.http.headers import RequestHead
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.protocols.messages import (
    DenialResponse,
    ForwardPlan,
    MissingSource,
    RoutedRequest,
    SourceRef,
    Unresolved,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages import request_reader, upgrade
from sidecar.proxy.messages.response_relay import write_whole
from sidecar.proxy.pipeline.authorizer import (
    UNREADABLE,
    WRITE_DENIED,
    Authorizer,
    Denied,
    Refused,
)
from sidecar.proxy.pipeline.classifier import RequestClassifier, SourceRules
from sidecar.proxy.pipeline.forward import Forwarder
from sidecar.proxy.pipeline.protocol_calls import ProtocolCalls
from sidecar.proxy.pipeline.request_context import AllowedRequest, RequestContext, decision_label
from sidecar.proxy.upstream.client import UpstreamRequest
from sidecar.recorder import RecordedDecision
from sidecar.tracing.trace import current_trace, within
from sidecar.tracing.trace_context import HEADER, with_traceparent

UNRESOLVED = "unresolved_source"

Response = LocalResponse | ResponseSent


class ProxyPipeline:
    """The pipeline between one agent and one data source."""

    def __init__(
        self,
        protocol: SourceProtocol,
        authorizer: Authorizer,
        forwarder: Forwarder,
        rules: SourceRules,
        limits: ProxyLimits,
        bodies: BodyBudget,
    ) -> None:
        self.protocol = protocol
        self.authorizer = authorizer
        self._forwarder = forwarder
        self.upstream = forwarder.upstream
        self.metrics = forwarder.metrics
        self.lineage = forwarder.lineage
        self.now = forwarder.lineage.now
        self.default = rules.default
        self.level_field = rules.level_field
        self._limits = limits
        self._calls = ProtocolCalls(protocol, authorizer, forwarder.worker, rules.level_field)
        self.bodies = bodies
        self._classifier = RequestClassifier(protocol, rules, forwarder.fetch, limits)
        self.match = self._classifier.match

    async def serve(self, request: HttpRequest) -> Response:
        """Answers one request. Every refusal has been recorded; if even that fails, the response is
        the spool's 503."""
        tracer = self.authorizer.tracer
        if tracer is not None:
            values = [value for name, value in request.fields if name.lower() == HEADER]
            trace = tracer.begin(values, proxied=True)
            if trace is not None:
                with within(trace):
                    return await self._serve(request)
        return await self._serve(request)

    async def _serve(self, request: HttpRequest) -> Response:
        with self.bodies.lease() as lease:
            context = RequestContext(self.now(), lease)
            return await self._respond(request, context, self._process(request, context))

    async def _respond(
        self, request: HttpRequest, context: RequestContext, processing: Awaitable[Response]
    ) -> Response:
        response: Response | None = None
        try:
            response = await self._handle_refusals(request, context, processing)
            if context.head is not None and upgrade.asks_websocket(context.head):
                # RFC 9931: what follows may not be HTTP, whatever became of the request.
                request.stop_reading()
                response.end_connection()
            return response
        finally:
            status = 0 if response is None else response.status
            self.metrics.count_request(context.decision, status)
            trace = current_trace()
            if trace is not None:
                trace.responded(status, context.decision)

    async def _handle_refusals(
        self, request: HttpRequest, context: RequestContext, processing: Awaitable[Response]
    ) -> Response:
        # Two levels: recording or forwarding a refusal may itself fail.
        try:
            try:
                return await processing
            except Refused as refused:
                context.decision = "DENY"
                denied = await self.authorizer.refuse(refused)
                if denied.recorded.report_only:
                    unchanged = context.forward_unchanged(request, denied.recorded)
                    return await self._forwarder.forward(request, unchanged)
            except Denied as error:
                context.decision = "DENY"
                denied = error
            return self._denial_response(context, denied)
        except SluiceError as error:
            if isinstance(error, UpstreamFailed):
                self.metrics.count_failure(error)  # a look-up failed
            # With its body unread, the connection can't carry another request.
            return LocalResponse.of_error(error, close=not request.body.complete)
        except ConnectionError:
            # The agent is gone. Its request and the decision are in the log.
            return ResponseSent(keep_alive=False)

    async def _process(self, request: HttpRequest, context: RequestContext) -> Response:
        """INVARIANT: each step relies on the ones before it. Nothing is sent to the data source
        before every source is decided, except look-ups with the agent's own credentials."""
        route, routed, head = self._classifier.classify(request, context)
        context.routed = routed
        who = routed.attribution
        try:
            route, routed = await self._read_body(request, context, route, head)
            if route.compose_response is not None:
                response = await self._calls.composed(route, routed, context.size)
                return await write_whole(request, response, ())
            sources = await self._calls.sources(route, routed, context.size)
        except Unresolved as error:
            raise Refused(403, UNRESOLVED, str(error), who) from error
        except MissingSource as error:
            raise Refused(403, WRITE_DENIED, str(error), who, source=error.source) from error
        except Malformed as error:
            close = not request.body.complete
            raise Refused(400, UNREADABLE, error.message, who, close=close) from error
        decisions: list[RecordedDecision] = []
        if route.route_class is not RouteClass.OPEN:
            sources = self._sources_to_authorize(route, sources, who)
            decisions = await self.authorizer.allow(sources, who)
            context.decision = decision_label(decisions)
        if route.route_class is RouteClass.WRITE:
            # A write can't be undone, so its record must be on disk before it is sent.
            for recorded in decisions:
                await recorded.durable
        prepared, refresh = await self._calls.prepared(route, routed, sources, context.size)
        upstream_request = self._upstream_request(request, context, head, route, prepared)
        trace = current_trace()
        if trace is not None:
            # The data source's spans become children of ours, which is a child of the agent's.
            lines = with_traceparent(upstream_request.lines, trace.context)
            upstream_request = upstream_request._replace(lines=lines)
        allowed = AllowedRequest(
            route, routed, upstream_request, prepared, sources, decisions, context.started, refresh
        )
        return await self._forwarder.forward(request, allowed)

    def _upstream_request(
        self,
        request: HttpRequest,
        context: RequestContext,
        head: RequestHead,
        route: ProtocolRoute,
        prepared: ForwardPlan,
    ) -> UpstreamRequest:
        """The allowed request as the data source gets it."""
        routed = context.routed
        assert routed is not None
        if route.replacement_target is not None:
            return request_reader.lookup_request(
                head, route.replacement_target(self.protocol, routed)
            )
        # The decision didn't need the body, so the agent is asked for it only now.
        if context.body is None and b"expect" in head.read:
            request.send_continue()
        readable = route.response_source is not None or prepared.filter_response is not None
        readable = readable or prepared.filter_event is not None
        upstream_request = request_reader.forwarded_request(
            request, head, routed.target, context.body, readable=readable
        )
        if prepared.body is None:
            return upstream_request
        return upstream_request.with_body(prepared.body)

    async def _read_body(
        self,
        request: HttpRequest,
        context: RequestContext,
        route: ProtocolRoute,
        head: RequestHead,
    ) -> tuple[ProtocolRoute, RoutedRequest]:
        """Reads the body if the route needs it. Returns the route and the request that result."""
        routed = context.routed
        assert routed is not None
        if route.parse_body is not None:
            context.body, media = await request_reader.read_body(
                request, head, self._limits, context.lease
            )
            routed = await self._calls.inspected(route, routed, context.body, media)
            context.routed = routed
        if route.refine is not None:
            refined = await self._calls.refined(route, routed, context.size)
            route = self._classifier.check_refined(refined, routed)
        return route, routed

    def _sources_to_authorize(
        self, route: ProtocolRoute, sources: tuple[SourceRef, ...], who: Attribution
    ) -> tuple[SourceRef, ...]:
        if not sources and route.route_class is not RouteClass.METADATA:
            # "Every source is allowed" would hold for an empty set, without any decision.
            raise Refused(
                403, UNRESOLVED, "the request names no source that a decision could be about", who
            )
        return self.effective_sources(route, sources)

    def effective_sources(
        self, route: ProtocolRoute, sources: tuple[SourceRef, ...]
    ) -> tuple[SourceRef, ...]:
        """The sources at the sensitivity level that the decision is about."""
        if (
            self.level_field is None
            or route.route_class is not RouteClass.RETRIEVE
            or route.filters_documents
        ):
            return sources
        # The response may hold any document, so the decision assumes the most sensitive one.
        return tuple(source._replace(sensitivity="critical") for source in sources)

    def _denial_response(self, context: RequestContext, denied: Denied) -> LocalResponse:
        response = LocalResponse.of_denial(
            denied.status, denied.decision, denied.event_id, close=denied.close
        )
        denial = DenialResponse(denied.status, denied.decision.reason, response.decision)
        own = self.protocol.render_denial(context.routed, denial)
        return response if own is None else response.in_protocol_format(own)
