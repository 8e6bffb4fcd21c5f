"""Takes one request through the proxy:

    read       the head, its route, and the body if the decision needs it (`classifier.py`)
    judge      parse, resolve, authorize (`request_judge.py`)
    prepare    plan what is added to the request and withheld from the response
    forward    send exactly what was decided (`forward.py`)

Knows this order, and which response the agent gets to a refusal. Knows nothing of bytes, policies
or any data source.
"""

from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import Malformed, SluiceError, UpstreamFailed
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.headers import encode_fields
from sidecar.http.request_body import BodyBudget, BodyBudgetExceeded
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    ForwardPlan,
    GrpcMessage,
    Permits,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceProtocol,
    Sources,
    Visibility,
)
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages import request_reader
from sidecar.proxy.messages.grpc_calls import framed_request, streamed_request
from sidecar.proxy.messages.response_relay import write_whole
from sidecar.proxy.pipeline.authorizer import (
    UNREADABLE,
    Authorizer,
    Denied,
    Refused,
)
from sidecar.proxy.pipeline.classifier import RequestClassifier, SourceRules
from sidecar.proxy.pipeline.forward import Forwarder
from sidecar.proxy.pipeline.message_stream import JudgedMessages
from sidecar.proxy.pipeline.request_context import AllowedRequest, RequestContext
from sidecar.proxy.pipeline.request_judge import Judged, JudgedSource, judge
from sidecar.proxy.worker_thread import LONGEST_INLINE, Refresh, no_refresh
from sidecar.tracing import HEADER, current_trace, with_traceparent, within

Response = LocalResponse | ResponseSent


class ProxyPipeline:
    def __init__(
        self,
        protocol: SourceProtocol,
        authorizer: Authorizer,
        forwarder: Forwarder,
        rules: SourceRules,
        limits: ProxyLimits,
        bodies: BodyBudget,
    ) -> None:
        classifier = RequestClassifier(protocol, rules, forwarder.sender.fetch, limits)
        worker = forwarder.worker
        self._source = JudgedSource(protocol, authorizer, rules, classifier, worker)
        self.protocol = protocol
        self._authorizer = authorizer
        self._limits = limits
        self._trailers = rules.trailers
        self.bodies = bodies
        self._forwarder = forwarder
        self._metrics = forwarder.metrics
        self._now = forwarder.lineage.now
        self.serve = self._serve if authorizer.tracer is None else self._traced
        """Answers one request. Every refusal has been recorded before it is answered; if a record
        can't be written, the answer is the spool's 503."""

    async def _traced(self, request: HttpRequest) -> Response:
        tracer = self._authorizer.tracer
        assert tracer is not None
        values = [value for name, value in request.fields if name.lower() == HEADER]
        with within(tracer.begin(values, proxied=True)):
            return await self._serve(request)

    async def _serve(self, request: HttpRequest) -> Response:
        context = RequestContext(self._now(), current_trace(), request.watch_client, request.body)
        response: Response | None = None
        refusal: Refused | Denied | None = None
        try:  # two levels: recording or forwarding a refusal may itself fail
            try:
                route, routed = await self._read(request, context)
                judged = await judge(self._source, route, routed, context)
                if isinstance(judged, Judged):
                    route, prepared, refresh = judged.route, FORWARD_UNCHANGED, no_refresh
                    if route.plan_forward is not None or route.route_class is RouteClass.WRITE:
                        prepared, refresh = await self._prepare(judged)
                    allowed = self._allowed(request, context, judged, prepared, refresh)
                    response = await self._forwarder.forward(request, allowed)
                else:
                    response = await write_whole(request, judged, ())
            except (Refused, Denied) as error:
                refusal = error
            if refusal is not None:
                response = await self._refuse(request, context, refusal)
            assert response is not None
        except SluiceError as error:
            if isinstance(error, UpstreamFailed):
                self._metrics.count_failure(error)  # a look-up failed
            # With its body unread, the connection can't carry another request.
            failed = LocalResponse.of_error(error, close=not request.body.complete)
            response = failed.in_format_of(self.protocol, context.readable)
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

    async def _read(
        self, request: HttpRequest, context: RequestContext
    ) -> tuple[ProtocolRoute, RoutedRequest]:
        """Read the head, find the route, and read the body if the route needs it. Raises
        `Refused`."""
        route, routed = self._source.classifier.classify(request, context)
        head, who, body = context.head, routed.attribution, request.body
        assert head is not None
        check_unread = self._source.classifier.check_unread
        # What a source in mode `report` denies is forwarded as it came. What was read of a body
        # that turned out to be too long would be gone.
        reports = self._authorizer.reports
        if route.reads_body and reports and head.length is None and not body.complete:
            check_unread(route, routed, close=False)
        try:
            if self._trailers:
                request_reader.check_trailers(request, head)
            if route.reads_body:
                context.lease = lease = self.bodies.lease()
                context.body, context.media = await request_reader.read_body(
                    request, head, self._limits, lease
                )
            elif route.stream:
                context.lease = self.bodies.lease()
                context.media = request_reader.body_media(head)
        except (Malformed, BodyBudgetExceeded) as error:
            close = context.body_arrives
            if not (reports and request.body_partly_read):
                check_unread(route, routed, close=close)
            if not isinstance(error, Malformed):
                raise
            raise Refused(400, UNREADABLE, error.message, who, close=close) from error
        return route, routed

    async def _prepare(self, judged: Judged) -> tuple[ForwardPlan, Refresh]:
        """Do the work that must precede forwarding an allowed request. Returns the plan of what to
        change in the request and its response, and the function to call before the worker thread
        reads the response."""
        route, routed, sources, decisions, size = judged
        if route.route_class is RouteClass.WRITE:
            # A write can't be undone, so its record must be on disk before it is sent.
            for recorded in decisions:
                await recorded.durable
        if route.plan_forward is None:
            return FORWARD_UNCHANGED, no_refresh
        # This may fetch policy documents. The worker thread, where the filter may run, can't.
        permits = await self._authorizer.permission(routed.attribution)
        visibility = self._visibility(sources, permits)
        # In the worker thread, `permits` relies on the facts that are gathered here.
        if size > LONGEST_INLINE:
            permits.refresh()
        plan, protocol = route.plan_forward, self.protocol
        prepared = await self._source.worker.call_for(
            routed.budget, size, plan, protocol, routed, sources, visibility
        )
        return prepared, permits.refresh

    def _visibility(self, sources: Sources, permits: Permits) -> Visibility:
        level_field = self._source.rules.level_field
        if level_field is None:
            return Visibility(permits, "", None)
        # A document in the response may come from any of the sources, so its level must be allowed
        # for all of them.
        levels = tuple(
            level
            for level in SENSITIVITIES
            if all(permits(source._replace(sensitivity=level)) for source in sources)
        )
        return Visibility(permits, level_field, None if levels == SENSITIVITIES else levels)

    def _allowed(
        self,
        request: HttpRequest,
        context: RequestContext,
        judged: Judged,
        prepared: ForwardPlan,
        refresh: Refresh,
    ) -> AllowedRequest:
        route, routed, sources, decisions, _ = judged
        upstream_request = self._upstream_request(request, context, route, routed, prepared)
        if route.stream:
            messages = JudgedMessages(self._source, judged, context, request, self._limits)
            upstream_request = streamed_request(upstream_request, messages)
            return AllowedRequest(
                route, routed, upstream_request, prepared, messages.sources, messages.decisions,
                context.started,
            )  # fmt: skip
        return AllowedRequest(
            route, routed, upstream_request, prepared, sources, decisions, context.started, refresh
        )

    def _upstream_request(
        self,
        request: HttpRequest,
        context: RequestContext,
        route: ProtocolRoute,
        routed: RoutedRequest,
        prepared: ForwardPlan,
    ) -> UpstreamRequest:
        """Return the request that goes to the data source for an allowed request."""
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
                b"" if route.stream else context.body,
                readable=filtered or route.response_source is not None,
                upgrade=context.websocket,
                trailers=self._trailers and not route.stream,
            )
            message = routed.body
            if isinstance(message, GrpcMessage):
                data = message.data if prepared.body is None else prepared.body
                upstream_request = framed_request(upstream_request, data, message.form)
            elif prepared.body is not None:
                upstream_request = upstream_request.with_body(prepared.body)
            if prepared.forward_fields is not None:
                lines = encode_fields(prepared.forward_fields(head))
                upstream_request = upstream_request._replace(lines=lines)
        if context.trace is not None:
            # The data source's spans become children of ours, which is a child of the agent's.
            lines = with_traceparent(upstream_request.lines, context.trace.context)
            upstream_request = upstream_request._replace(lines=lines)
        return upstream_request

    async def _refuse(
        self, request: HttpRequest, context: RequestContext, refusal: Refused | Denied
    ) -> Response:
        """Record the refusal unless it is recorded already, and return the response to the agent. A
        source in mode `report` forwards the request instead."""
        context.decision = "DENY"
        if isinstance(refusal, Denied):
            denied = refusal
        else:
            denied = await self._authorizer.refuse(refusal, request.method, request.target)
            if denied.recorded.report_only:
                unchanged = context.forward_unchanged(
                    request, denied.recorded, trailers=self._trailers
                )
                return await self._forwarder.forward(request, unchanged)
        response = LocalResponse.of_denial(
            denied.status, denied.decision, denied.event_id, close=denied.close
        )
        return response.in_format_of(self.protocol, context.readable)
