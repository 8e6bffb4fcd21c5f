"""Builds the rows of OpenSearch's table, by their kind. Pure."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardPlan,
    Permits,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.opensearch.handlers import lists, reads_and_writes, search
from sidecar.protocols.opensearch.indices import is_pattern
from sidecar.protocols.opensearch.request_parts import optional_json
from sidecar.protocols.opensearch.server import OpenSearchServer, hint_source, path_names
from sidecar.protocols.protocol import (
    FindSources,
    PlanForward,
    ProtocolRoute,
    RouteClass,
    Sources,
)

ComposeResponse = Callable[[Any, RoutedRequest, Permits], Coroutine[Any, Any, FetchedResponse]]


def read_route(
    methods: str, pattern: str, find_sources: FindSources, plan: PlanForward | None = None
) -> ProtocolRoute:
    return ProtocolRoute(
        methods,
        pattern,
        RouteClass.RETRIEVE,
        find_sources,
        parse_body=optional_json,
        plan_forward=plan,
        forwards_unchanged=True,
    )


def filtered(row: ProtocolRoute, plan: PlanForward) -> ProtocolRoute:
    """Return `row`, with `plan` for an agent that may not see every document."""
    unfiltered = row.plan_forward

    def forward(
        server: OpenSearchServer, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        if visibility.levels is not None:
            return plan(server, request, sources, visibility)
        if unfiltered is not None:
            return unfiltered(server, request, sources, visibility)
        return FORWARD_UNCHANGED

    return replace(row, plan_forward=forward, filters_documents=True)


def filtering_route(
    row: ProtocolRoute,
    plan: PlanForward,
    can_filter: Callable[[OpenSearchServer, RoutedRequest], bool],
) -> ProtocolRoute:
    """Return a row that withholds documents by their levels if the request allows it, else
    `row`."""
    filtering = filtered(row, plan)

    def refine(server: OpenSearchServer, request: RoutedRequest) -> ProtocolRoute:
        # `can_filter` reads the whole body, so it isn't called where documents have no levels.
        return filtering if server.level_field is not None and can_filter(server, request) else row

    return replace(row, refine=refine)


def search_route(methods: str, pattern: str, plan: PlanForward) -> ProtocolRoute:
    """Return the row of a search. `plan` is for an agent that may see every document."""
    row = read_route(methods, pattern, search.sources_of_search, plan)
    return filtering_route(row, search.filter_search, search.can_filter)


def language_route(pattern: str, find_sources: FindSources) -> ProtocolRoute:
    """Return the row of a query in a query language, whose response may have a cursor."""
    return read_route("GET POST", pattern, find_sources, search.remember)


def metadata_route(methods: str, pattern: str, find_sources: FindSources) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, RouteClass.METADATA, find_sources)


def composed_route(methods: str, pattern: str, compose: ComposeResponse) -> ProtocolRoute:
    """Return the row of a list, filtered by what the agent may see."""
    return ProtocolRoute(methods, pattern, RouteClass.METADATA, compose_response=compose)


def listing_route(pattern: str) -> ProtocolRoute:
    """Return the row of a response with a member per index: authorized by the names in the path, or
    filtered if they are patterns."""
    row = metadata_route("GET HEAD", pattern, reads_and_writes.sources_of_metadata)
    composed = composed_route("GET HEAD", pattern, lists.list_by_index)

    def refine(_server: OpenSearchServer, request: RoutedRequest) -> ProtocolRoute:
        # A pattern may cover indices that the agent may not see. They are left out of the response,
        # where a judgement by name would deny the whole request.
        return composed if any(map(is_pattern, path_names(request))) else row

    return replace(row, refine=refine)


def write_route(
    methods: str, pattern: str, find_sources: FindSources = reads_and_writes.sources_of_write
) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, RouteClass.WRITE, find_sources, hint_source)


def renaming_route(methods: str, pattern: str) -> ProtocolRoute:
    """Return the row of a write that creates or deletes a name."""
    # Forget names before and after: a look-up in between could have cached either meaning.
    return replace(
        write_route(methods, pattern),
        before_forward=OpenSearchServer.forget_names,
        after_forward=OpenSearchServer.forget_names,
    )


def release_route(pattern: str) -> ProtocolRoute:
    """Return the row of a request that gives continuations back to the server."""
    # Open, since it reads no source. `release` checks that the continuations are the caller's own.
    return ProtocolRoute(
        "DELETE", pattern, RouteClass.OPEN, search.release, parse_body=optional_json
    )
