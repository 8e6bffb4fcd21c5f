"""Builds the kinds of row in OpenSearch's table. Pure."""

from collections.abc import Callable
from dataclasses import replace

from sidecar.protocols.messages import RoutedRequest
from sidecar.protocols.opensearch.bodies import optional_json
from sidecar.protocols.opensearch.handlers import lists, query_languages, reads, search, writes
from sidecar.protocols.opensearch.index_names import is_pattern
from sidecar.protocols.opensearch.server import OpenSearchServer, hint_source, path_names
from sidecar.protocols.route_table import FindSources, PlanForward, ProtocolRoute, RouteClass


def filtering_route(
    row: ProtocolRoute,
    plan: PlanForward,
    can_filter: Callable[[OpenSearchServer, RoutedRequest], bool],
) -> ProtocolRoute:
    """A row that withholds documents by their levels if the request allows it, else `row`."""
    filtering = replace(row, plan_forward=plan, filters_documents=True)

    def refine(server: OpenSearchServer, request: RoutedRequest) -> ProtocolRoute:
        return filtering if server.level_field is not None and can_filter(server, request) else row

    return replace(row, refine=refine)


def search_route(methods: str, pattern: str) -> ProtocolRoute:
    row = read_route(methods, pattern, search.sources_of_search)
    row = replace(row, plan_forward=search.forward_search)
    return filtering_route(row, search.filter_search, search.can_filter)


def async_search_route(methods: str, pattern: str) -> ProtocolRoute:
    row = read_route(methods, pattern, search.sources_of_search)
    row = replace(row, plan_forward=search.forward_async)
    return filtering_route(row, search.filter_async, search.can_filter)


def read_route(methods: str, pattern: str, find_sources: FindSources) -> ProtocolRoute:
    return ProtocolRoute(
        methods, pattern, RouteClass.RETRIEVE, find_sources, parse_body=optional_json
    )


def language_route(pattern: str, find_sources: FindSources) -> ProtocolRoute:
    """A query in a language, whose response may have a cursor."""
    row = read_route("GET POST", pattern, find_sources)
    return replace(row, plan_forward=query_languages.remember_cursor)


def listing_route(pattern: str) -> ProtocolRoute:
    """A response with a member per index: authorized by the names in the path, or filtered if they
    are patterns."""
    row = ProtocolRoute("GET HEAD", pattern, RouteClass.METADATA, reads.sources_of_metadata)
    filtered = ProtocolRoute(
        "GET HEAD", pattern, RouteClass.METADATA, compose_response=lists.list_by_index
    )

    def refine(_server: OpenSearchServer, request: RoutedRequest) -> ProtocolRoute:
        return filtered if any(map(is_pattern, path_names(request))) else row

    return replace(row, refine=refine)


def write_route(methods: str, pattern: str) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, RouteClass.WRITE, writes.sources_of_write, hint_source)


def renaming_route(
    methods: str, pattern: str, find_sources: FindSources = writes.sources_of_write
) -> ProtocolRoute:
    """A write that creates or deletes a name."""
    return replace(
        ProtocolRoute(methods, pattern, RouteClass.WRITE, find_sources, hint_source),
        before_forward=OpenSearchServer.forget_names,
        after_forward=OpenSearchServer.forget_names,
    )


def release_route(methods: str, pattern: str) -> ProtocolRoute:
    """Gives continuations back to the server."""
    return ProtocolRoute(
        methods, pattern, RouteClass.OPEN, search.release, parse_body=optional_json
    )
