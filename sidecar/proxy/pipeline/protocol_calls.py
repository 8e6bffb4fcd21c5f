"""Calls a protocol's functions for one request: on the event loop if the body is short, in the
worker thread if it is long (`worker_thread.py`). Knows which arguments each function needs, and
that filters by the policy set need fresh facts. Refuses nothing by itself.

`size` is the size of the request's body in bytes.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from policies.definitions.model import SENSITIVITIES
from sidecar.protocols.messages import (
    FetchedResponse,
    ForwardPlan,
    Permits,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, Sources
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.worker_thread import LONGEST_INLINE, Refresh, WorkerThread


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
        """The response that the protocol composes itself. Raises what
        `ProtocolRoute.compose_response` raises."""
        permits = await self._authorizer.permission(routed.attribution)
        composed = route.compose_response
        assert composed is not None

        def compose(routed: RoutedRequest) -> Coroutine[Any, Any, FetchedResponse]:
            return composed(self._protocol, routed, permits)

        return await self._worker.drive(routed, size, compose, permits.refresh)

    async def sources(self, route: ProtocolRoute, routed: RoutedRequest, size: int) -> Sources:
        """The sources that the request concerns, charged to its budget; empty if the route names
        none. Raises `OverBudget`, and what the route's function raises."""
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
        """How the request and its response are to be changed, and what to call before the worker
        reads the response."""
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
