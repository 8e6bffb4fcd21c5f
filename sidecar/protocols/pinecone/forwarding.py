"""Plans what is forwarded to Pinecone and how its responses are filtered, and builds the rows that
do so, for REST (`routes.py`) and for gRPC (`grpc_routes.py`)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from sidecar.protocols.pinecone.sources import PineconeSources, QueryForm, filtered, withhold
from sidecar.protocols.pinecone.wires import Body, Wire
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    ForwardPlan,
    PlanForward,
    ProtocolRoute,
    RoutedRequest,
    Sources,
    Visibility,
    without_waiting,
)
from sidecar.protocols.shared.responses import expect_list, expect_object, levels_of

FindSources = Callable[[Any, RoutedRequest], Sources]


class PineconeForwarding(PineconeSources):
    def plan_filtered(
        self,
        wire: Wire,
        form: QueryForm,
        request: RoutedRequest,
        sources: Sources,
        visibility: Visibility,
    ) -> ForwardPlan:
        """Return the plan that filters records by level, and remembers the token of the next
        page."""
        levels = levels_of(visibility)
        if levels is None and form.paged:
            return self.plan_paged(wire, request, sources)
        if levels is None:
            return FORWARD_UNCHANGED
        narrowed = form.narrow(wire.read_request(request.body), levels)
        remember = partial(self._remember_page, request, sources)
        step = withhold(wire, form, levels, narrowed)
        body = None if narrowed.body is None else wire.write_request(narrowed.body)
        return ForwardPlan(body, lambda response: filtered(wire, response, remember, step))

    def plan_paged(self, wire: Wire, request: RoutedRequest, sources: Sources) -> ForwardPlan:
        """Return the plan that passes the response unchanged, and remembers the token of the next
        page."""
        remember = partial(self._remember_page, request, sources)
        return ForwardPlan(filter_response=lambda response: filtered(wire, response, remember))

    def plan_namespaces(self, wire: Wire, visibility: Visibility) -> ForwardPlan:
        """Return the plan that filters a list of namespaces, `{"namespaces": [{"name"}],
        "total_count"}`."""

        def step(whole: Body) -> tuple[int, bool]:
            found = expect_list(whole.get("namespaces") or [], "list")
            names = [expect_object(each, "list").get("name") for each in found]
            named = zip(found, names, strict=True)
            whole["namespaces"] = [each for each, own in named if self._may_see(own, visibility)]
            # The total covers all pages, including the namespaces that the agent may not see.
            whole.pop("total_count", None)
            return 0, True

        return ForwardPlan(filter_response=lambda response: filtered(wire, response, step))

    def plan_stats(self, wire: Wire, visibility: Visibility) -> ForwardPlan:
        """Return the plan that filters index statistics, `{"namespaces": {name: {"vectorCount"}},
        "totalVectorCount"}`."""

        def step(whole: Body) -> tuple[int, bool]:
            found = expect_object(whole.get("namespaces") or {}, "response")
            seen = {name: each for name, each in found.items() if self._may_see(name, visibility)}
            if len(seen) == len(found):
                return 0, False
            # Totals over every namespace would reveal how much is in the hidden ones.
            whole["namespaces"] = seen
            counts = (expect_object(each, "response").get("vectorCount") for each in seen.values())
            whole["totalVectorCount"] = sum(count or 0 for count in counts)
            for name in ("indexFullness", "memory_fullness", "storage_fullness"):
                whole.pop(name, None)
            return 0, True

        return ForwardPlan(filter_response=lambda response: filtered(wire, response, step))

    def _may_see(self, name: object, visibility: Visibility) -> bool:
        return visibility.permits(self._of(name if isinstance(name, str) else ""))


def judged(route: ProtocolRoute, find: FindSources) -> ProtocolRoute:
    """Return `route` with its sources found in the request itself, without a look-up."""
    return replace(route, find_sources=without_waiting(find), find_sources_now=find)


def planned(
    plan: Callable[[PineconeForwarding, Wire, Visibility], ForwardPlan], wire: Wire
) -> PlanForward:
    """Return `plan` as the function that a route has for it."""

    def plan_forward(
        pinecone: PineconeForwarding,
        _request: RoutedRequest,
        _sources: Sources,
        visibility: Visibility,
    ) -> ForwardPlan:
        return plan(pinecone, wire, visibility)

    return plan_forward


def paged(route: ProtocolRoute, wire: Wire) -> ProtocolRoute:
    """Return `route` with the tokens of its next pages remembered."""

    def plan(
        pinecone: PineconeForwarding, request: RoutedRequest, sources: Sources, _seen: Visibility
    ) -> ForwardPlan:
        return pinecone.plan_paged(wire, request, sources)

    return replace(route, plan_forward=plan)


def filtering(unfiltered: ProtocolRoute, form: QueryForm, wire: Wire) -> ProtocolRoute:
    """Return a route for the same retrieval as `unfiltered`, but with its records filtered."""

    def plan(
        pinecone: PineconeForwarding,
        request: RoutedRequest,
        sources: Sources,
        visibility: Visibility,
    ) -> ForwardPlan:
        return pinecone.plan_filtered(wire, form, request, sources, visibility)

    def refine(_pinecone: PineconeForwarding, request: RoutedRequest) -> ProtocolRoute:
        # A request that can't be narrowed gets the unfiltered row, which is judged at `critical`.
        return narrowing if form.filterable(wire.read_request(request.body)) else unfiltered

    narrowing = replace(unfiltered, plan_forward=plan, filters_documents=True)
    return replace(narrowing, refine=refine)
