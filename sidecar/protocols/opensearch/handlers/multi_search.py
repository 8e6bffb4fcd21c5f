"""Handles requests with several searches or documents in one body; and requests in a query
language, which names its indices in its text: SQL and PPL of OpenSearch, SQL and ES|QL of
Elasticsearch. A query that the parsers in `languages` don't understand is denied."""

from collections.abc import Iterable
from functools import cache, partial
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.request_target import encode_segment
from sidecar.protocols.opensearch import query_filter, request_parts
from sidecar.protocols.opensearch.indices import is_pattern, parse_expand_wildcards, parse_names
from sidecar.protocols.opensearch.languages.piped import indices_of_esql, indices_of_ppl
from sidecar.protocols.opensearch.languages.sql import indices_of_sql
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
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Sources,
    Unresolved,
    Visibility,
)
from sidecar.protocols.shared.responses import to_json
from sidecar.protocols.strict_body import OverBudget


class SearchLine(NamedTuple):
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
    """Return the searches in a body of JSON lines, which alternate between the head and the body of
    a search. Raises `Malformed` and `Unresolved`."""
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
    searches = parse_searches(request, read_parameters(request))
    filtered = [(each.head, *query_filter.add_filter(each.body, visibility)) for each in searches]
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
    """Return whether the response to a request for documents by id will contain the documents'
    levels."""
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


_MEMBERS = frozenset((
    "allow_partial_results", "allow_partial_search_results", "columnar", "fetch_size",
    "field_multi_value_leniency", "filter", "include_ccs_metadata", "include_execution_metadata",
    "keep_alive", "keep_on_completion", "locale", "page_timeout", "parameters", "params", "profile",
    "query", "request_timeout", "runtime_mappings", "time_zone", "wait_for_completion_timeout",
))  # fmt: skip
"""The members that the body of a query may have. `tables`, `catalog`, `settings` and
`project_routing` are left out: they change what the names in the query mean."""

_CURSOR_MEMBERS = frozenset(("columnar", "cursor", "page_timeout", "request_timeout", "time_zone"))

# Covers at least what a pattern covers in any of the languages.
_EXPAND = "open,hidden"


async def sources_of_sql(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of a SQL query. If the request has a cursor, these are the sources of the
    query that the cursor was issued for."""
    if isinstance(request.body, dict) and "cursor" in request.body:
        return await sources_of_cursor(server, request)
    return await _sources(server, request, indices_of_sql(_query_text(request)))


async def sources_of_cursor(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of the query that the cursor was issued for."""
    read_parameters(request)
    # A query beside the cursor could be the one that the server runs.
    if not request.body.keys() <= _CURSOR_MEMBERS:
        raise Malformed("the body has members that can't stand beside `cursor`, such as a query")
    token = string_member(request.body, "cursor")
    return server.continuations.sources_of(token, request.attribution)


async def close_cursor(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return no sources, since closing a cursor reads nothing. Raises `Unresolved` if the cursor is
    not the caller's own."""
    string_member(request.body, "cursor")
    await sources_of_cursor(server, request)
    return ()


async def sources_of_ppl(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    return await _sources(server, request, indices_of_ppl(_query_text(request)))


async def sources_of_esql(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of an ES|QL query, including the indices from which its enrich policies
    were made."""
    expressions, policies = indices_of_esql(_query_text(request))
    names = [name for each in expressions for name in parse_names(each)]
    if any(map(is_pattern, names)):
        raise Unresolved("a pattern may match a view, whose indices are unknown: use index names")
    found = await _sources(server, request, expressions)
    # An enrich policy reads a copy of these indices.
    for policy in policies:
        indices = await _policy_indices(parse_names(policy)[0], request)
        found = union(found, await server.indices.sources(indices, request, strict=True))
    return found


def _query_text(request: RoutedRequest) -> str:
    read_parameters(request)
    query = string_member(request.body, "query")
    for key in request.body:
        if key not in _MEMBERS:
            raise Unresolved(f"`{key[:64]}` is not supported beside a query")
    return query


async def _sources(
    server: OpenSearchServer, request: RoutedRequest, expressions: Iterable[str]
) -> Sources:
    names = [name for each in expressions for name in parse_names(each)]
    find = server.indices.sources
    # `strict`, since in a query language a name that isn't an index may be a view or another data
    # source.
    found = await find(names, request, expand_wildcards=_EXPAND, strict=True)
    # `filter` and `runtime_mappings` have the form they have in a search, and may look up something
    # in any index.
    queries = [request.body.get("filter"), request.body.get("runtime_mappings")]
    looked_up = names_in_query(queries, request.budget)
    return union(found, await find(sorted(looked_up), request, expand_wildcards=_EXPAND))


async def _policy_indices(policy: str, request: RoutedRequest) -> tuple[str, ...]:
    """Return the indices from which an enrich policy was made. Raises `Unresolved` if they can't be
    looked up."""
    try:
        response = await request.fetch(f"/_enrich/policy/{encode_segment(policy)}")
        if response.status != 200:
            raise Unresolved(f"can't look up enrich policy `{policy}`: status {response.status}")
        [one] = orjson.loads(response.body)["policies"]
        [config] = one["config"].values()
        if config["name"] == policy:
            return parse_names(config["indices"])
    except OverBudget:
        # It is a subclass of `Malformed`, which is caught below, and must stay a 400.
        raise
    except UpstreamFailed as error:
        raise Unresolved(f"can't look up enrich policy `{policy}`: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, Malformed) as error:
        reason = f"the data source describes enrich policy `{policy}` in an unknown form"
        raise Unresolved(reason) from error
    raise Unresolved(f"the data source describes another enrich policy than `{policy}`")
