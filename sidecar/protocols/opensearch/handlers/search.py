"""Handles searches and their continuations (scrolls, points in time, asynchronous searches): finds
their sources, and filters their responses. A continuation stands for the sources of its search,
which are authorized again at every use."""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import Malformed
from sidecar.protocols.opensearch import query_filter
from sidecar.protocols.opensearch.query_filter import ShownFields
from sidecar.protocols.opensearch.request_parts import names_in_search
from sidecar.protocols.opensearch.result_filter import ResultFilter
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    parse_json,
    path_names,
    read_parameters,
    requested_names,
    string_member,
    union,
)
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Sources,
    Visibility,
)
from sidecar.protocols.shared.responses import expect_object, to_json


async def sources_of_search(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of a search: those that the path names, or that its point in time was
    opened for, and those that the body names."""
    query, body = read_parameters(request), request.body
    names = sorted(names_in_search(body, request.budget))
    if body is None or body.get("pit") is None:
        return await server.sources([*requested_names(request), *names], request, query)
    # A point in time has its own indices, so a request without a name doesn't mean all indices. If
    # the path names some nevertheless, they are judged too.
    issued = server.continuations.sources_of(string_member(body["pit"], "id"), request.attribution)
    if request.path_params:
        names += path_names(request)
    return union(issued, await server.sources(names, request, query))


def can_filter(server: OpenSearchServer, request: RoutedRequest) -> bool:
    field = server.level_field
    # A look-up in another index may reveal what that index contains.
    if field is None or names_in_search(request.body, request.budget):
        return False
    return query_filter.can_filter(request.body, read_parameters(request), field, request.budget)


def forward_search(
    server: OpenSearchServer, request: RoutedRequest, sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """Return the plan for a search whose response passes unchanged. If the search uses a scroll or
    a point in time, the plan remembers which sources the token in the response stands for."""
    # Most searches have none, so their responses can be streamed instead of read whole.
    if "scroll" not in read_parameters(request) and not (request.body and request.body.get("pit")):
        return FORWARD_UNCHANGED
    return remember(server, request, sources, visibility)


def filter_search(
    server: OpenSearchServer, request: RoutedRequest, sources: Sources, visibility: Visibility
) -> ForwardPlan:
    body, shown = query_filter.add_filter(request.body, visibility)
    check = _response_filter(server, request, sources, visibility, shown)
    return ForwardPlan(orjson.dumps(body), check)


async def sources_of_scroll(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of the search that began the scroll. The scroll id is in the path or the
    body."""
    if request.path_params:
        # With both, the server could continue a different scroll from the one that is judged.
        if request.body is not None:
            raise Malformed("the scroll id is in the path, so the request can't have a body")
        return await sources_of_id(server, request)
    read_parameters(request)
    if request.body is not None and not request.body.keys() <= {"scroll", "scroll_id"}:
        raise Malformed("the body has members other than `scroll` and `scroll_id`")
    token = string_member(request.body, "scroll_id")
    return server.continuations.sources_of(token, request.attribution)


async def sources_of_id(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    # Called only for its checks: an unknown parameter could name another search.
    read_parameters(request)
    return server.continuations.sources_of(request.path_params[0], request.attribution)


def filter_page(
    server: OpenSearchServer, request: RoutedRequest, sources: Sources, visibility: Visibility
) -> ForwardPlan:
    """Return the plan that filters the next page of a scroll, or the result of a search that was
    begun earlier."""
    # `sources_of_scroll` has checked that there is only one token.
    token = request.path_params[0] if request.path_params else request.body["scroll_id"]
    # If the search began while the agent could see everything, its pages may lack the levels. Their
    # documents then count as `critical`.
    shown = ShownFields(level=not server.is_level_added(token, request.attribution))
    check = _response_filter(server, request, sources, visibility, shown)
    return ForwardPlan(filter_response=check)


async def release(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return no sources, since releasing continuations reads nothing. Raises `Unresolved` unless
    they are the caller's own: otherwise one agent could end the searches of another."""
    read_parameters(request)
    # The servers accept several continuations in each of these places.
    tokens: list[Any] = request.path_params[0].split(",") if request.path_params else []
    body = request.body or {}
    # Accept one place only: of two, the server could use the one that isn't checked here.
    if not body.keys() <= {"scroll_id", "pit_id", "id"} or len(body) + bool(tokens) != 1:
        raise Malformed("give the continuations once: in the path, `scroll_id`, `pit_id` or `id`")
    for value in body.values():
        tokens = value if isinstance(value, list) else [value]
    for token in tokens:
        if not isinstance(token, str) or not token:
            raise Malformed("a continuation must be a non-empty string")
        # The route is open, so this is the only check.
        server.continuations.sources_of(token, request.attribution)
    return ()


def _response_filter(
    server: OpenSearchServer,
    request: RoutedRequest,
    sources: Sources,
    visibility: Visibility,
    shown: ShownFields,
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return a function that filters the response to a search, and remembers the continuations in
    it."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        results = ResultFilter(visibility)
        body = expect_object(parse_json(response), "answer")
        results.filter_search(body, shown)
        # The response to an asynchronous search wraps that of the search itself.
        if "response" in body:
            results.filter_search(body["response"], shown)
        server.remember_continuations(body, request, sources, level_added=not shown.level)
        return ForwardedPart(to_json(body), results.withheld)

    return filter_response


def remember(
    server: OpenSearchServer, request: RoutedRequest, sources: Sources, _visibility: Visibility
) -> ForwardPlan:
    """Return the plan that passes a response unchanged, and remembers the continuations in it."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        server.remember_continuations(parse_json(response), request, sources)
        # Some formats of query languages have no place for a cursor, so it is in a header field.
        for name, value in response.fields:
            if name.lower() == b"cursor":
                token = value.decode("latin-1")
                server.continuations.remember(token, request.attribution, sources)
        return ForwardedPart(response.body)

    return ForwardPlan(filter_response=filter_response)
