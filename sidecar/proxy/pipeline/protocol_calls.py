"""Calls a protocol's functions for one request: on the loop where the body is short, in the worker
thread where it is long (`worker.py`). Knows which function needs which arguments, and that what
filters by the policy set needs a fresh look at it. Refuses nothing by itself.

`size` is how many bytes the request's body has.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from policies.definitions.model import SENSITIVITIES
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardPlan,
    Permits,
    RoutedRequest,
    SourceRef,
    Visibility,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute
from sidecar.proxy.pipeline.authorizer import Authorizer
from sidecar.proxy.worker_thread import LONGEST_INLINE, Fresh, WorkerThread, as_it_is

Places = tuple[SourceRef, ...]


class ProtocolCalls:
    """Of one data source. `marked` as `Gate` has it."""

    def __init__(
        self, dialect: SourceProtocol, judge: Authorizer, worker: WorkerThread, marked: str | None
    ) -> None:
        self._dialect = dialect
        self._judge = judge
        self._worker = worker
        self._marked = marked

    async def inspected(
        self, route: ProtocolRoute, asked: RoutedRequest, raw: bytes, media: str | None
    ) -> RoutedRequest:
        """The request with its body as the route reads it. Raises `Malformed`."""
        assert route.parse_body is not None
        call, budget = self._worker.call, asked.budget
        return asked._replace(body=await call(len(raw), route.parse_body, raw, media, budget))

    async def refined(
        self, route: ProtocolRoute, asked: RoutedRequest, size: int
    ) -> ProtocolRoute | None:
        """The route that the body comes to. Raises `Malformed` and `Unresolved`."""
        assert route.refine is not None
        return await self._worker.call(size, route.refine, self._dialect, asked)

    async def composed(
        self, route: ProtocolRoute, asked: RoutedRequest, size: int
    ) -> FetchedResponse:
        """The answer that is put together here. Raises as `ProtocolRoute.composed`."""
        permits = await self._judge.permitting(asked.attribution)
        composed = route.compose_response
        assert composed is not None

        def compose(asked: RoutedRequest) -> Coroutine[Any, Any, FetchedResponse]:
            return composed(self._dialect, asked, permits)

        return await self._worker.drive(asked, size, compose, permits.refresh)

    async def places(self, route: ProtocolRoute, asked: RoutedRequest, size: int) -> Places:
        """The sources that the request concerns, charged to its budget; none where the route names
        none. Raises as `ProtocolRoute.places`, and `OverBudget`."""
        drive, visible = self._worker.drive, route.find_visible_sources
        places: Places = ()
        if visible is not None:
            permits = await self._judge.permitting(asked.attribution)

            def see(asked: RoutedRequest) -> Coroutine[Any, Any, Places]:
                return visible(self._dialect, asked, permits)

            places = await drive(asked, size, see, permits.refresh)
        elif route.find_sources is not None:
            places = await drive(asked, size, partial(route.find_sources, self._dialect))
        asked.budget.charge_sources(place.source_id for place in places)
        return places

    async def prepared(
        self, route: ProtocolRoute, asked: RoutedRequest, places: Places, size: int
    ) -> tuple[ForwardPlan, Fresh]:
        """What becomes of the allowed request and its answer, and what is to be called before the
        worker looks at the answer."""
        if route.plan_forward is None:
            return FORWARD_UNCHANGED, as_it_is
        permits = await self._judge.permitting(asked.attribution)
        sight = self._sight(places, permits)
        if size > LONGEST_INLINE:
            permits.refresh()
        call = self._worker.call
        prepared = await call(size, route.plan_forward, self._dialect, asked, places, sight)
        return prepared, permits.refresh

    def _sight(self, places: Places, permits: Permits) -> Visibility:
        if self._marked is None:
            return Visibility(permits, "", None)
        levels = tuple(
            level
            for level in SENSITIVITIES
            if all(permits(place._replace(sensitivity=level)) for place in places)
        )
        return Visibility(permits, self._marked, None if levels == SENSITIVITIES else levels)
