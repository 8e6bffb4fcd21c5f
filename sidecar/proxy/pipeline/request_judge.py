"""Judges one request: for the proxy, which forwards it, and for check doors, whose gateways do.

    classify     read the head once, find the route; refuse what could be read in two ways
    resolve      find the set of sources it concerns, from the request alone
    authorize    decide about every source; each record goes to the spool

Knows this order, and the policy name of each refusal. Knows nothing of bytes, policies or any data
source.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.protocols.messages import (
    FetchedResponse,
    MissingSource,
    RoutedRequest,
    SourceRef,
    UnknownObject,
    Unresolved,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, Sources
from sidecar.protocols.strict_body import BodyParser
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import UNREADABLE, WRITE_DENIED, Authorizer, Refused
from sidecar.proxy.pipeline.classifier import RequestClassifier, SourceRules
from sidecar.proxy.pipeline.lookups import Fetch
from sidecar.proxy.pipeline.protocol_calls import ProtocolCalls
from sidecar.proxy.pipeline.request_context import RequestContext, decision_label
from sidecar.proxy.worker_thread import WorkerThread
from sidecar.recorder import RecordedDecision

UNRESOLVED = "unresolved_source"

Asked = TypeVar("Asked")
"""The form in which a request arrives."""


class Judged(NamedTuple):
    """A request that may happen, with one of `decisions` for each of `sources`. Both are empty if
    there was nothing to decide. `size` is that of the body that was read, in bytes."""

    route: ProtocolRoute
    routed: RoutedRequest
    sources: tuple[SourceRef, ...]
    decisions: list[RecordedDecision]
    size: int


class RequestJudge(ABC, Generic[Asked]):
    """Judges the requests of one agent to one data source. `fetch` makes look-ups there."""

    composes: ClassVar[bool]
    """Whether a response that the protocol composes can be given instead of forwarding."""
    # Attributes, because a method in between would cost each request a call.
    classify: Callable[[Asked, RequestContext], tuple[ProtocolRoute, RoutedRequest]]
    """Reads the head and finds the route. Raises `Refused`."""
    find_sources: Callable[[ProtocolRoute, RoutedRequest, int], Coroutine[Any, Any, Sources]]
    """The sources to decide about; the last argument is the size of the body. Raises what
    `ProtocolCalls.sources` raises."""

    def __init__(
        self,
        protocol: SourceProtocol,
        authorizer: Authorizer,
        rules: SourceRules,
        fetch: Fetch,
        limits: ProxyLimits,
        worker: WorkerThread,
    ) -> None:
        self.protocol = protocol
        self.authorizer = authorizer
        self.limits = limits
        self.worker = worker
        self.level_field = rules.level_field
        self.calls = ProtocolCalls(protocol, authorizer, worker, rules.level_field)
        self.classifier = RequestClassifier(protocol, rules, fetch, limits)

    @abstractmethod
    async def read_body(
        self, request: Asked, context: RequestContext, parse: BodyParser
    ) -> RoutedRequest:
        """The request with the body that the decision needs, which `context` then holds too. Raises
        `Malformed`."""

    def unreadable(self, _request: Asked, error: Malformed, who: Attribution) -> Refused:
        """The refusal of a request whose body or sources make no sense."""
        return Refused(400, UNREADABLE, error.message, who)

    async def judge(self, request: Asked, context: RequestContext) -> Judged | FetchedResponse:
        """The request as it may happen, or the response that was composed instead. Raises `Denied`
        if its denial is recorded, `Refused` if that is still to be done, and `SluiceError` if
        nothing was decided.

        INVARIANT: each step relies on the ones before it. Nothing is sent to the data source
        before every source is decided, except look-ups with the agent's own credentials."""
        route, routed = self.classify(request, context)
        context.routed, who, calls = routed, routed.attribution, self.calls
        try:
            if route.parse_body is not None:
                routed = await self.read_body(request, context, route.parse_body)
            size = 0 if context.body is None else len(context.body)
            if route.refine is not None:
                refined = await self.worker.call_for(
                    routed.budget, size, route.refine, self.protocol, routed
                )
                # Checked again: the row that the head led to may have been open, and this one
                # closed.
                route = self.classifier.check_row(refined, routed, "the method in this body")
            if self.composes and route.compose_response is not None:
                return await calls.composed(route, routed, size)
            sources = await self.find_sources(route, routed, size)
        except UnknownObject as error:
            # That it doesn't exist is said only to an agent that may read whatever does.
            known = (await self.authorizer.permission(who)).admits_below(error.below, error.named)
            raise Refused(404 if known else 403, UNRESOLVED, str(error), who) from error
        except Unresolved as error:
            raise Refused(403, UNRESOLVED, str(error), who) from error
        except MissingSource as error:
            raise Refused(403, WRITE_DENIED, str(error), who, source=error.source) from error
        except Malformed as error:
            raise self.unreadable(request, error, who) from error
        decisions: list[RecordedDecision] = []
        if route.route_class is not RouteClass.OPEN:
            if not sources and route.route_class is not RouteClass.METADATA:
                # "Every source is allowed" would hold for an empty set, without any decision.
                reason = "the request names no source that a decision could be about"
                raise Refused(403, UNRESOLVED, reason, who)
            if self.level_field is not None:
                sources = _at_highest_level(route, sources)
            decisions = await self.authorizer.allow(sources, who, context.watch_client)
            context.decision = decision_label(decisions)
        return Judged(route, routed, sources, decisions, size)


def _at_highest_level(
    route: ProtocolRoute, sources: tuple[SourceRef, ...]
) -> tuple[SourceRef, ...]:
    """The sources of a request to a data source that labels its documents, at the level that the
    decision is about."""
    if route.route_class is not RouteClass.RETRIEVE or route.filters_documents:
        return sources
    # The response may hold any document, so the decision assumes the most sensitive one.
    return tuple(source._replace(sensitivity="critical") for source in sources)
