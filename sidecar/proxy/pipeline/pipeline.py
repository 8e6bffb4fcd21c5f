"""One proxied request, from what was read of it to whether it may happen:

    read         the head, once; what two readers could read in two ways is refused
    route        what the protocol's table says it is; what nobody knows is refused
    resolve      the set of sources it concerns, by the request alone
    judge        every one of them; each record goes to the spool
    forward      the same bytes that were judged (`forward.py`)

Knows the order, and what is refused under which name. Knows nothing of bytes, of policies or of any
data source.
"""

from collections.abc import Coroutine
from typing import Any

from policies.ground.errors import Malformed, SluiceError, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.body_budget import BodyBudget
from sidecar.http.headers import RequestHead
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
from sidecar.proxy.local_response import LocalResponse, ResponseSent
from sidecar.proxy.messages import request_reader as intake
from sidecar.proxy.messages import upgrade
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Authorizer, Denied, Refused
from sidecar.proxy.pipeline.classifier import WRITE_DENIED, RequestClassifier
from sidecar.proxy.pipeline.forward import AllowedRequest, Forwarder
from sidecar.proxy.pipeline.protocol_calls import ProtocolCalls
from sidecar.proxy.pipeline.request_context import RequestContext, decided
from sidecar.proxy.upstream.client import UpstreamRequest
from sidecar.proxy.upstream.pool import UpstreamConnection
from sidecar.recorder import RecordedDecision

UNRESOLVED = "unresolved_source"


class ProxyPipeline:
    """What stands between one agent and one data source. `writes` is whether writes are judged, or
    denied without a look; `marked` where the data source marks its documents with their level, None
    where it does not."""

    def __init__(
        self,
        dialect: SourceProtocol,
        judge: Authorizer,
        forward: Forwarder,
        default: Attribution,
        limits: ProxyLimits,
        bodies: BodyBudget,
        *,
        writes: bool,
        marked: str | None = None,
    ) -> None:
        self.dialect = dialect
        self.judge = judge
        self._forward = forward
        self.upstream = forward.upstream
        self.traffic = forward.traffic
        self.note = forward.note
        self.noted = forward.noted
        self.now = forward.now
        self.default = default
        self._limits = limits
        self._calls = ProtocolCalls(dialect, judge, forward.worker, marked)
        self._bodies = bodies
        self.marked = marked
        self._reader = RequestClassifier(dialect, default, forward.fetch, limits, writes=writes)
        self.found = self._reader.found

    async def serve(self, request: AgentRequest) -> LocalResponse | ResponseSent:
        """Answers one request. Whatever is refused has been recorded; where even that can't be,
        the answer is the spool's 503."""
        with self._bodies.lease() as lease:
            case = RequestContext(self.now(), lease)
            return await self._answered(request, case, self._serve(request, case))

    async def carried_on(
        self,
        request: AgentRequest,
        allowed: AllowedRequest,
        pending: RecordedDecision | None,
        wire: UpstreamConnection | None,
    ) -> LocalResponse | ResponseSent:
        """The rest of a request that was decided on the short way, and was sent on `wire`."""
        with self._bodies.lease() as lease:
            case = RequestContext(allowed.started, lease, allowed.asked)
            carried = self._carried(request, case, allowed, pending, wire)
            return await self._answered(request, case, carried)

    async def _carried(
        self,
        request: AgentRequest,
        case: RequestContext,
        allowed: AllowedRequest,
        pending: RecordedDecision | None,
        wire: UpstreamConnection | None,
    ) -> LocalResponse | ResponseSent:
        if pending is not None and not pending.passes:
            await pending.durable
            raise Denied(403, pending)
        if wire is None and pending is not None and pending.durable.done():
            # A lost record ends it here. Its answer may have come: nothing is sent twice.
            pending.durable.result()
        case.decision = decided(allowed.pendings)
        return await self._forward.passed(request, allowed, wire)

    async def _answered(
        self,
        request: AgentRequest,
        case: RequestContext,
        serving: Coroutine[Any, Any, LocalResponse | ResponseSent],
    ) -> LocalResponse | ResponseSent:
        answer: LocalResponse | ResponseSent | None = None
        try:
            answer = await self._came_to(request, case, serving)
            if case.head is not None and upgrade.asks(case.head):
                # RFC 9931: what follows may be no HTTP, whatever became of the request.
                request.stop_reading()
                answer.end()
            return answer
        finally:
            self.traffic.came_to(case.decision, answer)

    async def _came_to(
        self,
        request: AgentRequest,
        case: RequestContext,
        serving: Coroutine[Any, Any, LocalResponse | ResponseSent],
    ) -> LocalResponse | ResponseSent:
        try:
            try:
                return await serving
            except Refused as refused:
                case.decision = "DENY"
                denied = await self.judge.refuse(refused)
                if denied.pending.report_only:
                    let_through = case.let_through(request, denied.pending)
                    return await self._forward.passed(request, let_through)
            except Denied as error:
                case.decision = "DENY"
                denied = error
            return self._told(case, denied)
        except SluiceError as error:
            if isinstance(error, UpstreamFailed):
                self.traffic.failed(error)  # when it was asked for a name
            return LocalResponse.of_error(error, close=not request.body.is_eof())
        except ConnectionError:
            # The agent is gone. What was asked and decided is in the log.
            return ResponseSent(keep_alive=False)

    async def _serve(
        self, request: AgentRequest, case: RequestContext
    ) -> LocalResponse | ResponseSent:
        route, asked, head = self._reader.read(request, case)
        case.asked = asked
        who = asked.attribution
        try:
            route, asked = await self._read_body(request, case, route, head)
            if route.compose_response is not None:
                answer = await self._calls.composed(route, asked, case.size)
                return await self._forward.composed(request, answer)
            places = await self._calls.places(route, asked, case.size)
        except Unresolved as error:
            raise Refused(403, UNRESOLVED, str(error), who) from error
        except MissingSource as error:
            raise Refused(403, WRITE_DENIED, str(error), who, place=error.source) from error
        except Malformed as error:
            close = not request.body.is_eof()
            raise Refused(400, UNREADABLE, error.message, who, close=close) from error
        pendings: list[RecordedDecision] = []
        if route.route_class is not RouteClass.OPEN:
            places = self._to_judge(route, places, who)
            pendings = await self.judge.allow(places, who)
            case.decision = decided(pendings)
        if route.route_class is RouteClass.WRITE:
            # A write can't be taken back: its record comes first.
            for pending in pendings:
                await pending.durable
        prepared, fresh = await self._calls.prepared(route, asked, places, case.size)
        ask = self._ask(request, case, head, route, prepared)
        allowed = AllowedRequest(route, asked, ask, prepared, places, pendings, case.started, fresh)
        return await self._forward.passed(request, allowed)

    def _ask(
        self,
        request: AgentRequest,
        case: RequestContext,
        head: RequestHead,
        route: ProtocolRoute,
        prepared: ForwardPlan,
    ) -> UpstreamRequest:
        """The allowed request as the data source gets it."""
        asked = case.asked
        assert asked is not None
        if route.replacement_target is not None:
            return intake.lookup(head, route.replacement_target(self.dialect, asked))
        if case.body is None and b"expect" in head.read:
            request.welcome_body()
        readable = route.response_source is not None or prepared.filter_response is not None
        readable = readable or prepared.filter_event is not None
        ask = intake.forwarded(request, head, asked.target, case.body, readable=readable)
        return ask if prepared.body is None else ask.with_body(prepared.body)

    async def _read_body(
        self, request: AgentRequest, case: RequestContext, route: ProtocolRoute, head: RequestHead
    ) -> tuple[ProtocolRoute, RoutedRequest]:
        """The route and what is asked, with the body where it has to be read."""
        asked = case.asked
        assert asked is not None
        if route.parse_body is not None:
            case.body, media = await intake.read_body(request, head, self._limits, case.lease)
            case.asked = asked = await self._calls.inspected(route, asked, case.body, media)
        if route.refine is not None:
            refined = await self._calls.refined(route, asked, case.size)
            route = self._reader.opened(refined, asked)
        return route, asked

    def _to_judge(
        self, route: ProtocolRoute, places: tuple[SourceRef, ...], who: Attribution
    ) -> tuple[SourceRef, ...]:
        if not places and route.route_class is not RouteClass.METADATA:
            # Of none, every one is allowed, and nobody was asked.
            raise Refused(403, UNRESOLVED, "the request names nothing that could be judged", who)
        return self.levelled(route, places)

    def levelled(
        self, route: ProtocolRoute, places: tuple[SourceRef, ...]
    ) -> tuple[SourceRef, ...]:
        """The places at the level at which they are judged."""
        if (
            self.marked is None
            or route.route_class is not RouteClass.RETRIEVE
            or route.filters_documents
        ):
            return places
        # It may return any document, so it is judged as if it returned the worst.
        return tuple(place._replace(sensitivity="critical") for place in places)

    def _told(self, case: RequestContext, denied: Denied) -> LocalResponse:
        reply = LocalResponse.of_denial(
            denied.status, denied.decision, denied.event_id, close=denied.close
        )
        refusal = DenialResponse(denied.status, denied.decision.reason, reply.decision)
        own = self.dialect.render_denial(case.asked, refusal)
        return reply if own is None else reply.in_words_of(own)
