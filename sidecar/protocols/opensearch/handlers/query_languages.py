"""Requests in a query language: SQL and PPL of OpenSearch, SQL and ES|QL of Elasticsearch. A query
names its indices in its text. A query that the readers in `languages` don't understand is denied.
"""

from collections.abc import Iterable

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.request_target import encode_segment
from sidecar.protocols.budget import OverBudget
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.opensearch.indices import is_pattern, parse_names
from sidecar.protocols.opensearch.languages.piped import indices_of_esql, indices_of_ppl
from sidecar.protocols.opensearch.languages.sql import indices_of_sql
from sidecar.protocols.opensearch.request_parts import names_in_query
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    read_parameters,
    string_member,
    union,
)
from sidecar.protocols.protocol import Sources

_MEMBERS = frozenset((
    "allow_partial_results", "allow_partial_search_results", "columnar", "fetch_size",
    "field_multi_value_leniency", "filter", "include_ccs_metadata", "include_execution_metadata",
    "keep_alive", "keep_on_completion", "locale", "page_timeout", "parameters", "params", "profile",
    "query", "request_timeout", "runtime_mappings", "time_zone", "wait_for_completion_timeout",
))  # fmt: skip
"""The members of a body. `tables`, `catalog`, `settings` and `project_routing` are missing: they
change what the names in the query mean."""

_CURSOR_MEMBERS = frozenset(("columnar", "cursor", "page_timeout", "request_timeout", "time_zone"))

# Covers at least what a pattern covers in any of the languages.
_EXPAND = "open,hidden"


async def sources_of_sql(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of a SQL query, or of the query that its cursor was issued for."""
    if isinstance(request.body, dict) and "cursor" in request.body:
        return await sources_of_cursor(server, request)
    query = _query_text(request)
    return await _sources(server, request, indices_of_sql(query))


async def sources_of_cursor(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of the query that the cursor was issued for."""
    read_parameters(request)
    # A query beside the cursor could be the one that the server runs.
    if not request.body.keys() <= _CURSOR_MEMBERS:
        raise Malformed("the body has members that can't stand beside `cursor`, such as a query")
    token = string_member(request.body, "cursor")
    return server.continuations.sources_of(token, request.attribution)


async def close_cursor(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return no sources, since closing a cursor reads nothing. The cursor must be the caller's
    own."""
    string_member(request.body, "cursor")
    await sources_of_cursor(server, request)
    return ()


async def sources_of_ppl(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    return await _sources(server, request, indices_of_ppl(_query_text(request)))


async def sources_of_esql(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of an ES|QL query, and the indices that its enrich policies were made
    from."""
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
    """Return the indices that an enrich policy was made from. Raises `Unresolved`."""
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
