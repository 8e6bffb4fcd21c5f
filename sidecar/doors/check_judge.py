"""Judges a request that a gateway asks about, by the tables, checks and records of the proxy, and
says why a check has no body that can be judged, and which setting of the gateway would bring it.

A check can change neither the request nor the response. So whatever the proxy would narrow, sieve
or compose is judged as reading the whole data source too, at its highest level; documents with
levels of their own count as `critical`; a continuation that came through the gateway is not known
here, and denied; and no lineage is written.

Knows neither keys, nor HTTP, nor gRPC.
"""

from typing import NamedTuple

from policies.definitions.model import RANK, Sensitivity
from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.headers import RequestHead
from sidecar.http.server.head_cache import HeadTemplate
from sidecar.live_keys import AgentIdentity
from sidecar.platform.eager import Watch, unwatched
from sidecar.protocols.protocol import ProtocolRoute, RouteClass, RoutedRequest, Sources, Unresolved
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import BodyParser
from sidecar.proxy.messages.request_reader import body_media
from sidecar.proxy.pipeline.authorizer import UNREADABLE, WRITE_DENIED, Authorizer, Refused
from sidecar.proxy.pipeline.classifier import SourceRules
from sidecar.proxy.pipeline.forward import UpstreamSender
from sidecar.proxy.pipeline.request_context import RequestContext
from sidecar.proxy.pipeline.request_judge import RequestJudge
from sidecar.proxy.routing.source_endpoint import SharedParts
from sidecar.recorder import RecordedDecision
from sidecar.settings.doors import Door, DoorProtocol
from sidecar.settings.model import Source

_OF_ENVOY = (
    "the check carries no body: have the gateway send it along (Envoy: `with_request_body`; Envoy "
    "Gateway: `bodyToExtAuth`; Istio: `includeRequestBodyInCheck`; agentgateway: "
    "`includeRequestBody`)"
)
# It is not known here which gateway asks, so the texts name them all, and those that can't do it.
NO_BODY: dict[DoorProtocol, str] = {
    "envoy_http": _OF_ENVOY,
    "envoy_grpc": _OF_ENVOY,
    "forward_auth": (
        "the check carries no body: have the gateway send it along (Traefik: `forwardBody`; "
        "APISIX: `request_method: POST`; HAProxy: a body with a `Content-Length` that fits "
        "`tune.bufsize`). nginx, Caddy and Kong can't: ask by another gateway, or use the "
        "sidecar's proxy"
    ),
}
PARTIAL_BODY = (
    "the check carries only a part of the body, or does not say that it is whole: raise "
    "`max_request_bytes` of the gateway's `with_request_body`, and let its header "
    "`x-envoy-auth-partial-body` reach the door"
)


class CheckedRequest(NamedTuple):
    """A request that a gateway asks about. `head` is made by `Judgement.head_of`."""

    method: str
    target: str
    """The target as the client wrote it."""
    head: RequestHead
    body: bytes | None
    """The whole body, None if it isn't here."""
    missing: str
    """The reason why there is no body, and the gateway's setting that would bring it."""
    fault: str = ""
    """The reason why the request can't be read at all; empty if it can."""
    template: HeadTemplate | None = None
    """The template of the head, if it is remembered."""
    traceparent: tuple[bytes, ...] = ()
    watch_client: Watch = unwatched
    """Says when the gateway leaves: then nothing more is looked up, and the check is denied."""


class Outcome(NamedTuple):
    """The decisions about a checked request. The request may pass only once each decision is
    durable."""

    passes: bool
    decisions: list[RecordedDecision]
    """The decisions, in the order of the sources. Empty if there was nothing to decide, else at
    least one."""
    routed: RoutedRequest | None = None
    """The request as far as it was read."""
    status: int = 403
    """The status that a proxy would answer a denial with."""

    @property
    def shown(self) -> RecordedDecision | None:
        """The decision that the gateway hears about: a denial first, in mode `report` too."""
        for recorded in self.decisions:
            if recorded.decision.decision != "ALLOW":
                return recorded
        return self.decisions[-1] if self.decisions else None


class CheckJudge(RequestJudge[CheckedRequest]):
    """Judges what one agent asks through one door."""

    composes = False

    def __init__(
        self,
        door: Door,
        source: Source,
        agent: AgentIdentity,
        who: Attribution,
        sender: UpstreamSender,
        shared: SharedParts,
    ) -> None:
        whole = SourceNames(source).whole
        reports = source.mode == "report"
        enforcer, way = shared.enforcer, door.protocol
        authorizer = Authorizer(door.name, whole, agent, enforcer, reports=reports, way=way)
        rules = SourceRules(who, source.writes == "allow", source.sensitivity_field, source.opaque)
        super().__init__(
            sender.protocol, authorizer, rules, sender.fetch, shared.limits, shared.worker
        )
        self.classify = self._classify
        self.find_sources = self._find_sources
        self._who = who
        self._whole = whole._replace(sensitivity=_highest_level(source))

    def _classify(
        self, check: CheckedRequest, context: RequestContext
    ) -> tuple[ProtocolRoute, RoutedRequest]:
        if check.fault:
            raise Refused(400, UNREADABLE, check.fault, self._who)
        context.head = check.head
        return self.classifier.classify_head(
            check.method, check.target, check.head, check.template, context
        )

    async def read_body(
        self, check: CheckedRequest, context: RequestContext, parse: BodyParser
    ) -> RoutedRequest:
        routed, body = context.routed, check.body
        assert routed is not None
        if body is None:
            raise Malformed(check.missing)
        media = body_media(check.head)
        context.body = body
        budget = routed.budget
        parsed = await self.worker.call_for(budget, len(body), parse, body, media, budget)
        context.routed = routed = routed._replace(body=parsed)
        return routed

    async def _find_sources(
        self, route: ProtocolRoute, routed: RoutedRequest, size: int
    ) -> Sources:
        if route.replacement_target is not None:
            # The proxy forwards a read instead of this request. The gateway forwards the request
            # itself, which may write.
            hint = route.hint_source
            source = None if hint is None else hint(self.protocol, routed)
            reason = f"`{route.methods} {route.pattern}` may write, and no check can forward a read"
            raise Refused(403, WRITE_DENIED, reason, routed.attribution, source=source)
        if route.compose_response is not None:
            return (self._whole,)
        try:
            sources = await self.calls.sources(route, routed, size)
            if route.response_source is not None:
                sources = await self._described(route, routed, sources)
        except UpstreamFailed as error:
            reason = f"the data source can't be asked what the request concerns: {error.message}"
            raise Unresolved(reason) from error
        route_class = route.route_class
        if route_class is RouteClass.OPEN:
            return sources
        if route_class is RouteClass.METADATA and not sources:
            return (self._whole,)
        if route.plan_forward is not None and not route.forwards_unchanged:
            sources = (*sources, self._whole)
        if self.level_field is not None and route_class is RouteClass.RETRIEVE:
            # Any document may be in the response, and no check can withhold it.
            sources = tuple(each._replace(sensitivity="critical") for each in sources)
        return sources

    async def _described(
        self, route: ProtocolRoute, routed: RoutedRequest, sources: Sources
    ) -> Sources:
        """Return the sources, and the one that the response is about: a name may have spellings
        that only the data source knows. The proxy learns that from the response; a door has to ask
        beforehand."""
        if routed.method not in ("GET", "HEAD"):
            return sources if route.route_class is RouteClass.WRITE else (*sources, self._whole)
        assert route.response_source is not None
        identify = route.response_source(self.protocol, routed)
        response = await routed.fetch(routed.target.forwarded)
        if not 200 <= response.status < 300:
            return sources  # only a success describes a source
        described = await self.worker.call(len(response.body), identify, response.body)
        if described is None:
            raise Unresolved("the data source does not say which source its response describes")
        return sources if described in sources else (*sources, described)


def _highest_level(source: Source) -> Sensitivity:
    """Return the highest level of anything in the source."""
    if source.sensitivity_field is not None:
        return "critical"
    levels = [source.sensitivity, *(each.sensitivity for each in source.names.values())]
    levels += [each.sensitivity for each in source.routes if each.sensitivity is not None]
    return max(levels, key=RANK.__getitem__)
