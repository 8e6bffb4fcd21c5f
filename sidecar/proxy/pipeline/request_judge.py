"""Judges one request: for the proxy, which forwards it, and for check doors, whose gateways do.

    classify     read the head once, find the route; refuse what could be read in two ways
    resolve      find the set of sources it concerns, from the request alone
    authorize    decide about every source; each record goes to the spool

Calls the protocol's functions on the event loop if the body is short, in the worker thread if it is
long (`worker_thread.py`). Filters by the policy set need fresh facts.

Knows this order, and the policy name of each refusal. Knows nothing of bytes, policies or any data
source.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardPlan,
    MissingSource,
    Permits,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceProtocol,
    SourceRef,
    Sources,
    UnknownObject,
    Unresolved,
    Visibility,
)
from sidecar.protocols.strict_body import BodyParser
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import UNREADABLE, WRITE_DENIED, Authorizer, Refused
from sidecar.proxy.pipeline.classifier import Fetch, RequestClassifier, SourceRules
from sidecar.proxy.pipeline.request_context import RequestContext, decision_label
from sidecar.proxy.worker_thread import LONGEST_INLINE, Refresh, WorkerThread
from sidecar.recorder import RecordedDecision


class ProtocolCalls:
    """Calls the protocol of one data source. `SourceRules` explains `level_field`."""

    def __init__(
        self,
        protocol: SourceProtocol,
        authorizer: Authorizer,
        worker: WorkerThread,
        level_field: str | None,
    ) -> None:
        self._protocol = protocol
        self._authorizer = authorizer
        self._worker = worker
        self._level_field = level_field

    async def composed(
        self, route: ProtocolRoute, routed: RoutedRequest, size: int
    ) -> FetchedResponse:
        """Return the response that the protocol composes itself. Raises what
        `ProtocolRoute.compose_response` raises."""
        permits = await self._authorizer.permission(routed.attribution)
        composed = route.compose_response
        assert composed is not None

        def compose(routed: RoutedRequest) -> Coroutine[Any, Any, FetchedResponse]:
            return composed(self._protocol, routed, permits)

        return await self._worker.drive(routed, size, compose, permits.refresh)

    async def sources(self, route: ProtocolRoute, routed: RoutedRequest, size: int) -> Sources:
        """Return the sources that the request concerns, charged to its budget; empty if the route
        names none. Raises `OverBudget`, and what the route's function raises."""
        sources: Sources | None = None
        if route.find_sources_now is not None and size <= LONGEST_INLINE:
            # Most requests name their sources themselves: nothing has to be looked up.
            sources = route.find_sources_now(self._protocol, routed)
        if sources is None:
            sources = await self._looked_up(route, routed, size)
        # One source alone is within any budget.
        if len(sources) > 1 and not route.names_keys:
            routed.budget.charge_sources(source.source_id for source in sources)
        return sources

    async def _looked_up(self, route: ProtocolRoute, routed: RoutedRequest, size: int) -> Sources:
        drive, visible = self._worker.drive, route.find_visible_sources
        if visible is not None:
            permits = await self._authorizer.permission(routed.attribution)

            def find(routed: RoutedRequest) -> Coroutine[Any, Any, Sources]:
                return visible(self._protocol, routed, permits)

            return await drive(routed, size, find, permits.refresh)
        if route.find_sources is not None:
            return await drive(routed, size, partial(route.find_sources, self._protocol))
        return ()

    async def prepared(
        self, route: ProtocolRoute, routed: RoutedRequest, sources: Sources, size: int
    ) -> tuple[ForwardPlan, Refresh]:
        """Return the changes to the request and its response, and the function to call before the
        worker reads the response."""
        assert route.plan_forward is not None
        # This may fetch policy documents. The worker thread, where the filter may run, can't.
        permits = await self._authorizer.permission(routed.attribution)
        visibility = self._visibility(sources, permits)
        # In the worker thread, `permits` relies on the facts that are gathered here.
        if size > LONGEST_INLINE:
            permits.refresh()
        prepared = await self._worker.call_for(
            routed.budget, size, route.plan_forward, self._protocol, routed, sources, visibility
        )
        return prepared, permits.refresh

    def _visibility(self, sources: Sources, permits: Permits) -> Visibility:
        if self._level_field is None:
            return Visibility(permits, "", None)
        # A document in the response may come from any of the sources, so its level must be allowed
        # for all of them.
        levels = tuple(
            level
            for level in SENSITIVITIES
            if all(permits(source._replace(sensitivity=level)) for source in sources)
        )
        return Visibility(permits, self._level_field, None if levels == SENSITIVITIES else levels)


UNRESOLVED = "unresolved_source"

Asked = TypeVar("Asked")
"""The request, in the form in which it arrives at the proxy or at a check door."""


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
    """True if a response that the protocol composes can be given instead of forwarding the
    request."""
    # Attributes, because a method in between would cost each request a call.
    classify: Callable[[Asked, RequestContext], tuple[ProtocolRoute, RoutedRequest]]
    """Reads the head and finds the route. Raises `Refused`."""
    find_sources: Callable[[ProtocolRoute, RoutedRequest, int], Coroutine[Any, Any, Sources]]
    """Finds the sources to decide about; the last argument is the size of the body. Raises what
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
        """Return the request with the body that the decision needs; `context` then holds the body
        too. Raises `Malformed`."""

    def unreadable(self, _request: Asked, error: Malformed, who: Attribution) -> Refused:
        """Return the refusal of a request with a body or sources that make no sense."""
        return Refused(400, UNREADABLE, error.message, who)

    async def judge(self, request: Asked, context: RequestContext) -> Judged | FetchedResponse:
        """Return the request as it may happen, or the response that was composed instead. Raises
        `Denied` if its denial is recorded, `Refused` if that is still to be done, and `SluiceError`
        if nothing was decided.

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
            # Only an agent that may read every possible source of this name learns that there is
            # none.
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
    """Return the sources of a request to a data source that labels its documents, each at the level
    to decide at."""
    if route.route_class is not RouteClass.RETRIEVE or route.filters_documents:
        return sources
    # The response may hold any document, so the decision assumes the most sensitive one.
    return tuple(source._replace(sensitivity="critical") for source in sources)
