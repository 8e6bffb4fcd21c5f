"""Several searches or documents in one body: all their sources, and the filtered response."""

from functools import cache, partial
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.messages import (
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Unresolved,
    Visibility,
)
from sidecar.protocols.opensearch import query_filter, request_parts
from sidecar.protocols.opensearch.indices import parse_expand_wildcards, parse_names
from sidecar.protocols.opensearch.request_parts import names_in_query, names_in_search
from sidecar.protocols.opensearch.result_filter import ResultFilter
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    object_list,
    parse_json,
    read_parameters,
    requested_names,
    string_member,
    union,
)
from sidecar.protocols.protocol import Sources
from sidecar.protocols.shared.responses import to_json


class SearchLine(NamedTuple):
    """One search of several: its index names, what patterns in them cover, its head and body."""

    names: tuple[str, ...]
    expand_wildcards: str | None
    head: dict[str, Any]
    body: dict[str, Any]


_HEAD_MEMBERS = frozenset((
    "allow_no_indices", "allow_partial_search_results", "ccs_minimize_roundtrips",
    "expand_wildcards", "ignore_throttled", "ignore_unavailable", "index", "indices",
    "max_concurrent_shard_requests", "preference", "request_cache", "routing", "search_type",
))  # fmt: skip


def parse_searches(request: RoutedRequest, query: dict[str, str]) -> list[SearchLine]:
    """Return the searches of a body of lines, which alternate between head and body."""
    if not request.body or len(request.body) % 2:
        raise Malformed("the last search of the body has a head but no body")
    searches = []
    # Parsed once, and not again for each line without a name of its own.
    default = cache(partial(requested_names, request))
    for head, body in zip(request.body[::2], request.body[1::2], strict=True):
        request.budget.check()
        unknown = head.keys() - _HEAD_MEMBERS
        if unknown:
            raise Unresolved(f"`{min(unknown)[:64]}` is not supported in the head of a search")
        if "index" in head and "indices" in head:
            raise Unresolved("the head of a search has both `index` and `indices`: use one")
        given = head.get("index", head.get("indices"))
        names = default() if given is None else parse_names(given)
        # `null` could mean the path's indices, or all of them.
        if given is None and ("index" in head or "indices" in head):
            raise Malformed("an index is not given as a name")
        expand = parse_expand_wildcards(head.get("expand_wildcards", query.get("expand_wildcards")))
        searches.append(SearchLine(names, expand, head, body))
    return searches


async def sources_of_searches(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    found: Sources = ()
    # Group names by what patterns cover, since that is part of a look-up. Each name of a group is
    # looked up once, however many searches contain it.
    by_expansion: dict[str | None, dict[str, None]] = {}
    for line in parse_searches(request, read_parameters(request)):
        request.budget.check()
        names = sorted(names_in_search(line.body, request.budget))
        in_time = line.body.get("pit") is not None
        # A point in time has its own indices, as in `sources_of_search`.
        if not in_time or {"index", "indices"} & line.head.keys() or request.path_params:
            names += line.names
        if in_time:
            token = string_member(line.body["pit"], "id")
            found = union(found, server.continuations.sources_of(token, request.attribution))
            request.budget.charge_sources(source.source_id for source in found)
        by_expansion.setdefault(line.expand_wildcards, {}).update(dict.fromkeys(names))
    for expand, group in by_expansion.items():
        sources = await server.indices.sources(group, request, expand_wildcards=expand)
        found = union(found, sources)
    return found


def can_filter_searches(server: OpenSearchServer, request: RoutedRequest) -> bool:
    """Return whether every search can withhold documents by their levels."""
    query, field = read_parameters(request), server.level_field
    return field is not None and all(
        not names_in_search(line.body, request.budget)
        and query_filter.can_filter(line.body, query, field, request.budget)
        for line in parse_searches(request, query)
    )


def filter_searches(
    _server: OpenSearchServer, request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    # The body is written again from what was judged; the heads are the caller's.
    filtered = [
        (line.head, *query_filter.add_filter(line.body, visibility))
        for line in parse_searches(request, read_parameters(request))
    ]
    lines = (each for head, body, _ in filtered for each in (head, body))

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        results, answer = ResultFilter(visibility), parse_json(response)
        parts = object_list(answer, "responses", UpstreamFailed)
        # Only their order matches answers to searches, so a missing one would shift the rest.
        if len(parts) != len(filtered):
            reason = f"the data source answered {len(parts)} searches instead of {len(filtered)}"
            raise UpstreamFailed(reason)
        for part, (_, _, shown) in zip(parts, filtered, strict=True):
            results.filter_search(part, shown)
        return ForwardedPart(to_json(answer), results.withheld)

    return ForwardPlan(b"".join(orjson.dumps(each) + b"\n" for each in lines), filter_response)


async def sources_of_documents(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of a request for several documents by id."""
    # Refuse unknown members, any of which could name an index.
    query, body = read_parameters(request), request.body or {}
    if not body.keys() <= {"docs", "ids", "parameters"}:
        raise Malformed("the body has members other than `docs`, `ids` and `parameters`")
    names: list[str] = []
    # The `parameters` of `_mtermvectors` apply to every document, and so does an index in them.
    defaults = body.get("parameters", {})
    if not isinstance(defaults, dict):
        raise Malformed("`parameters` must be an object")
    if defaults.get("_index") is not None:
        names += parse_names(defaults["_index"])
    documents = object_list(body, "docs")
    request.budget.charge_parts(len(documents))
    default = cache(partial(requested_names, request))
    for document in documents:
        request.budget.check()
        named = document.get("_index")
        names += default() if named is None else parse_names(named)
        # A document sent along in the request is data, not a query.
        rest = {key: document[key] for key in document if key not in ("_index", "doc")}
        names += names_in_query(rest, request.budget)
    # `ids` are in the path's index, even if all documents in `docs` name an index of their own.
    if "ids" in body or "ids" in query or not names:
        names += default()
    return await server.sources(names, request, query)


def can_filter_documents(_server: OpenSearchServer, request: RoutedRequest) -> bool:
    """Return whether the response to a request by id will contain the documents' levels."""
    if not request_parts.PREVENTS_FILTERING.isdisjoint(read_parameters(request)):
        return False
    documents = object_list(request.body or {}, "docs")
    # Only the whole `_source` shows the level, so no document may select its fields.
    return all({"_source", "stored_fields"}.isdisjoint(each) for each in documents)


def filter_documents(
    _server: OpenSearchServer, _request: RoutedRequest, _sources: Sources, visibility: Visibility
) -> ForwardPlan:
    def filter_response(response: FetchedResponse) -> ForwardedPart:
        results, answer = ResultFilter(visibility), parse_json(response)
        # A document requested by its path is the answer itself.
        if isinstance(answer, dict) and "docs" in answer:
            parts = object_list(answer, "docs", UpstreamFailed)
            answer["docs"] = [results.filter_document(each) for each in parts]
        else:
            answer = results.filter_document(answer)
        body = to_json(answer) if results.withheld else response.body
        return ForwardedPart(body, results.withheld)

    return ForwardPlan(filter_response=filter_response)
