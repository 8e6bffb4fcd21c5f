"""The kinds of row that OpenSearch's table is made of. Pure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sidecar.protocols.messages import RoutedRequest
from sidecar.protocols.opensearch import lists, searching
from sidecar.protocols.opensearch import query_languages as languages
from sidecar.protocols.opensearch import reads as reading
from sidecar.protocols.opensearch import writes as writing
from sidecar.protocols.opensearch.bodies import json_or_none
from sidecar.protocols.opensearch.indices import is_pattern
from sidecar.protocols.opensearch.server import OpenSearchServer, hint, path_index
from sidecar.protocols.route_table import ProtocolRoute, RouteClass


def sieved(
    row: ProtocolRoute, prepared: Any, fits: Callable[[OpenSearchServer, RoutedRequest], bool]
) -> ProtocolRoute:
    """A row that leaves out what may not be seen, where a request lets it: else it is `row`."""
    sharp = replace(row, plan_forward=prepared, filters_documents=True)

    def refined(server: OpenSearchServer, asked: RoutedRequest) -> ProtocolRoute:
        return sharp if server.marked is not None and fits(server, asked) else row

    return replace(row, refine=refined)


def search(methods: str, pattern: str) -> ProtocolRoute:
    row = read(methods, pattern, searching.by_search)
    row = replace(row, plan_forward=searching.whole_search)
    return sieved(row, searching.sieved_search, searching.fits_search)


def search_later(methods: str, pattern: str) -> ProtocolRoute:
    row = read(methods, pattern, searching.by_search)
    row = replace(row, plan_forward=searching.whole_async)
    return sieved(row, searching.sieved_async, searching.fits_search)


def read(methods: str, pattern: str, places: Any) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, RouteClass.RETRIEVE, places, parse_body=json_or_none)


def asking(pattern: str, places: Any) -> ProtocolRoute:
    """A query in a language, whose rest may be had later."""
    return replace(read("GET POST", pattern, places), plan_forward=languages.learning)


def listed(pattern: str) -> ProtocolRoute:
    """An object with a member for each index: judged by the names in the path; filtered where they
    are patterns."""
    row = ProtocolRoute("GET HEAD", pattern, RouteClass.METADATA, reading.told)
    list_ = ProtocolRoute("GET HEAD", pattern, RouteClass.METADATA, compose_response=lists.by_name)

    def refined(_server: OpenSearchServer, asked: RoutedRequest) -> ProtocolRoute:
        return list_ if any(map(is_pattern, path_index(asked))) else row

    return replace(row, refine=refined)


def write(methods: str, pattern: str) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, RouteClass.WRITE, writing.by_path, hint)


def naming(methods: str, pattern: str, places: Any = writing.by_path) -> ProtocolRoute:
    """A write that makes or takes away a name."""
    change = OpenSearchServer.names_change
    return ProtocolRoute(
        methods,
        pattern,
        RouteClass.WRITE,
        places,
        hint,
        before_forward=change,
        after_forward=change,
    )


def freed(methods: str, pattern: str) -> ProtocolRoute:
    return ProtocolRoute(
        methods, pattern, RouteClass.OPEN, searching.freed, parse_body=json_or_none
    )
