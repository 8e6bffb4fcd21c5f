"""Judges one request: for the proxy, which forwards it, and for check doors, where a gateway asks
only for the decision and forwards the request itself.

    read         the caller has read the head and found the route (`classifier.py`), and has read
                 the body if the route needs it
    parse        parse the body, and find the route that it leads to
    resolve      find the set of sources that the request concerns, from the request alone
    authorize    decide about every source; each record goes to the spool

Calls the protocol's functions on the event loop if the body is short, in the worker thread if it is
long (`proxy/worker_thread.py`). Filters that use the policy set need fresh facts.

Knows this order, and the policy name of each refusal. Knows nothing of connections and framing,
policies or any data source.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.protocols.protocol import (
    FetchedResponse,
    GrpcMessage,
    MissingSource,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceProtocol,
    SourceRef,
    Sources,
    UnknownObject,
    Unresolved,
)
from sidecar.proxy.messages.grpc_calls import IDENTITY, message_coding, read_call
from sidecar.proxy.pipeline.authorizer import UNREADABLE, WRITE_DENIED, Authorizer, Refused
from sidecar.proxy.pipeline.classifier import RequestClassifier, SourceRules
from sidecar.proxy.pipeline.request_context import RequestContext, decision_label
from sidecar.proxy.worker_thread import LONGEST_INLINE, WorkerThread, message_work
from sidecar.recorder import RecordedDecision

UNRESOLVED = "unresolved_source"


@dataclass(frozen=True, slots=True)
class JudgedSource:
    """A data source and one agent, with the parts that judge this agent's requests to this data
    source."""

    protocol: SourceProtocol
    authorizer: Authorizer
    rules: SourceRules
    classifier: RequestClassifier
    worker: WorkerThread
    checked_whole: SourceRef | None = None
    """The whole source at its highest level, at a check door; None in the proxy. The door's gateway
    can change neither the request nor the response, so wherever the proxy would change one, a
    decision about the whole source is needed too."""


class Judged(NamedTuple):
    """A request that may happen, with one of `decisions` for each of `sources`. Both are empty if
    there was nothing to decide. `size` is the work of walking the body: the number of its bytes
    or, for a message of gRPC, its `message_work`."""

    route: ProtocolRoute
    routed: RoutedRequest
    sources: tuple[SourceRef, ...]
    decisions: list[RecordedDecision]
    size: int


async def judge(
    source: JudgedSource, route: ProtocolRoute, routed: RoutedRequest, context: RequestContext
) -> Judged | FetchedResponse:
    """Judge one request. Returns the request that may happen, or the response that the protocol
    composed itself instead of forwarding (never at a check door). Raises `Denied` if the denial is
    recorded, `Refused` if it still has to be recorded, and `SluiceError` if nothing was decided.

    INVARIANT: each step relies on the ones before it. Nothing is sent to the data source before
    every source is decided, except look-ups with the agent's own credentials.
    """
    who, worker, body = routed.attribution, source.worker, context.body or b""
    size = len(body)
    try:
        if route.reads_body:
            context.routed = routed = await _parse(source, route, routed, context)
            if route.hint_in_body:
                source.classifier.check_route(route, routed, "this request")
            if isinstance(routed.body, GrpcMessage):
                # Not the size of the body, which may be compressed.
                size = message_work(len(routed.body.data))
        if route.refine is not None:
            refined = await worker.call_for(
                routed.budget, size, route.refine, source.protocol, routed
            )
            # Checked again: the row that the head led to may have been open, and this one closed.
            route = source.classifier.check_route(refined, routed, "the method in this body")
        if route.stream:
            return await _open_stream(source, route, routed)
        if source.checked_whole is not None:
            sources = await _find_checked(source, source.checked_whole, route, routed, size)
        elif route.compose_response is not None:
            return await _compose(source, route, routed, size)
        else:
            sources = await find_sources(source, route, routed, size)
    except (Unresolved, MissingSource, Malformed) as error:
        source.classifier.check_unread(route, routed, close=False)
        raise await refusal_of(error, source, who, close=context.body_arrives) from error
    decisions: list[RecordedDecision] = []
    if route.route_class is not RouteClass.OPEN:
        if not sources and route.route_class is not RouteClass.METADATA:
            # "Every source is allowed" would hold for an empty set, without any decision.
            reason = "the request names no source that a decision could be about"
            raise Refused(403, UNRESOLVED, reason, who)
        reads = route.route_class is RouteClass.RETRIEVE and not route.filters_documents
        if reads and source.rules.level_field is not None:
            # The response may hold any document, so the decision assumes the most sensitive one.
            sources = _critical(sources)
        decisions = await source.authorizer.allow(sources, who, context.watch_client)
        context.decision = decision_label(decisions)
    return Judged(route, routed, sources, decisions, size)


async def refusal_of(
    error: Unresolved | MissingSource | Malformed,
    source: JudgedSource,
    who: Attribution,
    *,
    close: bool = False,
) -> Refused:
    """Return the refusal of a request of which `error` says why it can't be judged. `close` holds
    for one that can't be read."""
    match error:
        case UnknownObject():
            # Only an agent that may read every possible source of this name learns that there is
            # none.
            permission = await source.authorizer.permission(who)
            known = permission.admits_below(error.below, error.named)
            return Refused(404 if known else 403, UNRESOLVED, str(error), who)
        case Unresolved():
            return Refused(403, UNRESOLVED, str(error), who)
        case MissingSource():
            return Refused(403, WRITE_DENIED, str(error), who, source=error.source)
        case Malformed():
            return Refused(400, UNREADABLE, error.message, who, close=close)


async def _open_stream(source: JudgedSource, route: ProtocolRoute, routed: RoutedRequest) -> Judged:
    """Return a call that may begin: its messages are judged when they arrive."""
    # It names no source yet, but a caller who may ask for nothing doesn't reach the data source.
    await source.authorizer.reauthorize((), routed.attribution)
    return Judged(route, routed, (), [], 0)


async def _parse(
    source: JudgedSource, route: ProtocolRoute, routed: RoutedRequest, context: RequestContext
) -> RoutedRequest:
    """Return the request with its body parsed. Raises `Malformed`, and `BodyBudgetExceeded` if
    there is no room for an inflated message, or for its fields."""
    call, budget, body = source.worker.call_for, routed.budget, context.body or b""
    size, media = len(body), context.media
    if route.parse_body is not None:
        parsed = await call(budget, size, route.parse_body, body, media, budget)
        return routed._replace(body=parsed)
    read = await read_message(source, route, routed, context, body)
    if context.lease is not None:
        context.lease.grow(max(0, len(read.data) - size) + read.memory)
    return routed._replace(body=read)


async def read_message(
    source: JudgedSource,
    route: ProtocolRoute,
    routed: RoutedRequest,
    context: RequestContext,
    framed: bytes,
) -> GrpcMessage:
    """Return the one message of a call that is in `framed`. Raises `Malformed`."""
    assert route.message is not None
    assert context.head is not None
    coding, limit = message_coding(context.head), source.classifier.inspected_bytes
    # A short body may be compressed, and its message long.
    work = message_work(len(framed) if coding == IDENTITY else limit)
    return await source.worker.call_for(
        routed.budget, work, read_call, route.message, framed, context.media, coding, limit
    )


async def _compose(
    source: JudgedSource, route: ProtocolRoute, routed: RoutedRequest, size: int
) -> FetchedResponse:
    permits = await source.authorizer.permission(routed.attribution)
    composed = route.compose_response
    assert composed is not None

    def compose(routed: RoutedRequest) -> Coroutine[Any, Any, FetchedResponse]:
        return composed(source.protocol, routed, permits)

    return await source.worker.drive(routed, size, compose, permits.refresh)


async def find_sources(
    source: JudgedSource, route: ProtocolRoute, routed: RoutedRequest, size: int
) -> Sources:
    """Return the sources that the request concerns; empty if the route concerns none. Their number
    is charged to the request's budget. Raises `OverBudget`, and what the route's function
    raises."""
    sources: Sources | None = None
    if route.find_sources_now is not None and size <= LONGEST_INLINE:
        # Most requests name their sources themselves: nothing has to be looked up.
        sources = route.find_sources_now(source.protocol, routed)
    if sources is None:
        sources = await _look_up(source, route, routed, size)
    # One source alone is within any budget.
    if len(sources) > 1 and not route.names_keys:
        routed.budget.charge_sources(each.source_id for each in sources)
    return sources


async def _look_up(
    source: JudgedSource, route: ProtocolRoute, routed: RoutedRequest, size: int
) -> Sources:
    drive, visible = source.worker.drive, route.find_visible_sources
    if visible is not None:
        permits = await source.authorizer.permission(routed.attribution)

        def find(routed: RoutedRequest) -> Coroutine[Any, Any, Sources]:
            return visible(source.protocol, routed, permits)

        return await drive(routed, size, find, permits.refresh)
    if route.find_sources is not None:
        return await drive(routed, size, partial(route.find_sources, source.protocol))
    return ()


async def _find_checked(
    source: JudgedSource, whole: SourceRef, route: ProtocolRoute, routed: RoutedRequest, size: int
) -> Sources:
    """Return the sources that the request concerns, as `find_sources` does, at a check door, whose
    gateway forwards the request as it is. Where the proxy would change the request or the response,
    `whole` has to be allowed too. Raises `Refused` if the proxy would forward a read in place of
    the request."""
    if route.replacement_target is not None:
        # The proxy forwards a read instead of this request. The gateway forwards the request
        # itself, which may write.
        hint = route.hint_source
        named = None if hint is None else hint(source.protocol, routed)
        reason = f"`{route.methods} {route.pattern}` may write, and no check can forward a read"
        raise Refused(403, WRITE_DENIED, reason, routed.attribution, source=named)
    if route.compose_response is not None:
        return (whole,)
    try:
        sources = await find_sources(source, route, routed, size)
        if route.response_source is not None:
            sources = await _described(source, whole, route, routed, sources)
    except UpstreamFailed as error:
        reason = f"the data source can't be asked what the request concerns: {error.message}"
        raise Unresolved(reason) from error
    route_class = route.route_class
    if route_class is RouteClass.OPEN:
        return sources
    if route_class is RouteClass.METADATA and not sources:
        return (whole,)
    if route.plan_forward is not None and not route.forwards_unchanged:
        sources = (*sources, whole)
    if source.rules.level_field is not None and route_class is RouteClass.RETRIEVE:
        # Any document may be in the response, and no check can withhold it.
        sources = _critical(sources)
    return sources


async def _described(
    source: JudgedSource,
    whole: SourceRef,
    route: ProtocolRoute,
    routed: RoutedRequest,
    sources: Sources,
) -> Sources:
    """Return `sources` and the source that the response will be about: a name may have spellings
    that only the data source knows. The proxy learns this from the response; a check door has to
    ask the data source beforehand."""
    if routed.method not in ("GET", "HEAD"):
        return sources if route.route_class is RouteClass.WRITE else (*sources, whole)
    assert route.response_source is not None
    identify = route.response_source(source.protocol, routed)
    response = await routed.fetch(routed.target.forwarded)
    if not 200 <= response.status < 300:
        return sources  # only a success describes a source
    described = await source.worker.call(len(response.body), identify, response.body)
    if described is None:
        raise Unresolved("the data source does not say which source its response describes")
    return sources if described in sources else (*sources, described)


def _critical(sources: Sources) -> Sources:
    return tuple(each._replace(sensitivity="critical") for each in sources)
