"""Takes one request through the steps that decide about it:

    classify     read the head once, find the route; refuse what could be read in two ways
    resolve      find the set of sources it concerns, from the request alone
    authorize    decide about every source; each record goes to the spool
    forward      send exactly what was decided (`forward.py`)

Knows this order, and the policy name of each refusal. Knows nothing of bytes, policies or any data
source.
"""

from policies.ground.errors import Malformed, SluiceError, UpstreamFailed
from sidecar.http.body_budget import BodyBudget
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    DenialResponse,
    ForwardPlan,
    MissingSource,
    RoutedRequest,
    SourceRef,
    Unresolved,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass
from sidecar.protocols.strict_body import BodyParser
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages import request_reader
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
from sidecar.proxy.worker_thread import no_refresh
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
        self.bodies = bodies
        self._authorizer = authorizer
        self._forwarder = forwarder
        self._metrics = forwarder.metrics
        self._now = forwarder.lineage.now
        self._level_field = rules.level_field
        self._limits = limits
        self._worker = forwarder.worker
        self._calls = ProtocolCalls(protocol, authorizer, forwarder.worker, rules.level_field)
        self._classifier = RequestClassifier(protocol, rules, forwarder.fetch, limits)
        self.serve = self._serve if authorizer.tracer is None else self._traced
        """Answers one request. Every refusal has been recorded; if even that fails, the response is
        the spool's 503."""

    async def _traced(self, request: HttpRequest) -> Response:
        tracer = self._authorizer.tracer
        assert tracer is not None
        values = [value for name, value in request.fields if name.lower() == HEADER]
        with within(tracer.begin(values, proxied=True)):
            return await self._serve(request)

    async def _serve(self, request: HttpRequest) -> Response:
        context = RequestContext(self._now(), current_trace())
        response: Response | None = None
        refusal: Refused | Denied | None = None
        try:  # two levels: recording or forwarding a refusal may itself fail
            try:
                decided = await self._decide(request, context)
                if isinstance(decided, AllowedRequest):
                    response = await self._forwarder.forward(request, decided)
                else:
                    response = decided
            except (Refused, Denied) as error:
                refusal = error
            if refusal is not None:
                response = await self._refuse(request, context, refusal)
            assert response is not None
        except SluiceError as error:
            if isinstance(error, UpstreamFailed):
                self._metrics.count_failure(error)  # a look-up failed
            # With its body unread, the connection can't carry another request.
            response = LocalResponse.of_error(error, close=not request.body.complete)
        except ConnectionError:
            response = ResponseSent(keep_alive=False)  # the agent is gone; the decision is recorded
        finally:
            if context.lease is not None:
                context.lease.release()
            status = 0 if response is None else response.status
            self._metrics.count_request(context.decision, status)
            if context.trace is not None:
                context.trace.responded(status, context.decision)
        if context.websocket:
            # RFC 9931: what follows may not be HTTP, whatever became of the request.
            request.stop_reading()
            response.end_connection()
        return response

    async def _decide(
        self, request: HttpRequest, context: RequestContext
    ) -> AllowedRequest | ResponseSent:
        """The request as it may be forwarded, or the response that was composed here.

        INVARIANT: each step relies on the ones before it. Nothing is sent to the data source
        before every source is decided, except look-ups with the agent's own credentials."""
        route, routed = self._classifier.classify(request, context)
        context.routed, who, calls = routed, routed.attribution, self._calls
        try:
            if route.parse_body is not None:
                routed = await self._read_body(request, context, route.parse_body)
            size = 0 if context.body is None else len(context.body)
            if route.refine is not None:
                refined = await self._worker.call(size, route.refine, self.protocol, routed)
                # Checked again: the row that the head led to may have been open, and this one
                # closed.
                route = self._classifier.check_row(refined, routed, "the method in this body")
            if route.compose_response is not None:
                composed = await calls.composed(route, routed, size)
                return await write_whole(request, composed, ())
            sources = await calls.sources(route, routed, size)
        except Unresolved as error:
            raise Refused(403, UNRESOLVED, str(error), who) from error
        except MissingSource as error:
            raise Refused(403, WRITE_DENIED, str(error), who, source=error.source) from error
        except Malformed as error:
            close = not request.body.complete
            raise Refused(400, UNREADABLE, error.message, who, close=close) from error
        decisions: list[RecordedDecision] = []
        if route.route_class is not RouteClass.OPEN:
            if not sources and route.route_class is not RouteClass.METADATA:
                # "Every source is allowed" would hold for an empty set, without any decision.
                reason = "the request names no source that a decision could be about"
                raise Refused(403, UNRESOLVED, reason, who)
            if self._level_field is not None:
                sources = _at_highest_level(route, sources)
            decisions = await self._authorizer.allow(sources, who)
            context.decision = decision_label(decisions)
        if route.route_class is RouteClass.WRITE:
            # A write can't be undone, so its record must be on disk before it is sent.
            for recorded in decisions:
                await recorded.durable
        prepared, refresh = FORWARD_UNCHANGED, no_refresh
        if route.plan_forward is not None:
            prepared, refresh = await calls.prepared(route, routed, sources, size)
        upstream_request = self._upstream_request(request, context, route, routed, prepared)
        return AllowedRequest(
            route, routed, upstream_request, prepared, sources, decisions, context.started, refresh
        )

    async def _read_body(
        self, request: HttpRequest, context: RequestContext, parse: BodyParser
    ) -> RoutedRequest:
        """The request with the body that the decision needs."""
        head, routed = context.head, context.routed
        assert head is not None
        assert routed is not None
        context.lease = lease = self.bodies.lease()
        raw, media = await request_reader.read_body(request, head, self._limits, lease)
        context.body = raw
        body = await self._worker.call(len(raw), parse, raw, media, routed.budget)
        context.routed = routed = routed._replace(body=body)
        return routed

    def _upstream_request(
        self,
        request: HttpRequest,
        context: RequestContext,
        route: ProtocolRoute,
        routed: RoutedRequest,
        prepared: ForwardPlan,
    ) -> UpstreamRequest:
        """The allowed request as the data source gets it."""
        head = context.head
        assert head is not None
        if route.replacement_target is not None:
            upstream_request = request_reader.lookup_request(
                head, route.replacement_target(self.protocol, routed)
            )
        else:
            filtered = prepared.filter_response is not None or prepared.filter_event is not None
            upstream_request = request_reader.forwarded_request(
                request,
                head,
                routed.target,
                context.body,
                readable=filtered or route.response_source is not None,
                upgrade=context.websocket,
            )
            if prepared.body is not None:
                upstream_request = upstream_request.with_body(prepared.body)
        if context.trace is not None:
            # The data source's spans become children of ours, which is a child of the agent's.
            lines = with_traceparent(upstream_request.lines, context.trace.context)
            upstream_request = upstream_request._replace(lines=lines)
        return upstream_request

    async def _refuse(
        self, request: HttpRequest, context: RequestContext, refusal: Refused | Denied
    ) -> Response:
        """Records the refusal unless that is done, and returns the response to the agent."""
        context.decision = "DENY"
        if isinstance(refusal, Denied):
            denied = refusal
        else:
            denied = await self._authorizer.refuse(refusal)
            if denied.recorded.report_only:
                unchanged = context.forward_unchanged(request, denied.recorded)
                return await self._forwarder.forward(request, unchanged)
        response = LocalResponse.of_denial(
            denied.status, denied.decision, denied.event_id, close=denied.close
        )
        denial = DenialResponse(denied.status, denied.decision.reason, response.decision)
        own = self.protocol.render_denial(context.routed, denial)
        return response if own is None else response.in_protocol_format(own)


def _at_highest_level(
    route: ProtocolRoute, sources: tuple[SourceRef, ...]
) -> tuple[SourceRef, ...]:
    """The sources of a request to a data source that labels its documents, at the level that the
    decision is about."""
    if route.route_class is not RouteClass.RETRIEVE or route.filters_documents:
        return sources
    # The response may hold any document, so the decision assumes the most sensitive one.
    return tuple(source._replace(sensitivity="critical") for source in sources)
