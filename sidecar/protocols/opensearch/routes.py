"""All routes of OpenSearch and Elasticsearch that may be allowed (`protocols/RULES.md`, OpenSearch;
opensearch-api-specification, the servers' REST handlers, and the clients opensearch-py 3.2 and
elasticsearch 9.5)."""

from collections.abc import Callable
from dataclasses import replace

from policies.ground.errors import Malformed
from sidecar.protocols.opensearch import request_parts
from sidecar.protocols.opensearch.handlers import multi_search, reads_and_writes, search
from sidecar.protocols.opensearch.indices import is_pattern
from sidecar.protocols.opensearch.request_parts import ndjson, optional_json
from sidecar.protocols.opensearch.server import OpenSearchServer, hint_source, path_names
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    ComposeResponse,
    FindSources,
    ForwardPlan,
    PlanForward,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    Sources,
    Visibility,
)

_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN, _OPEN = RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN


def read_route(
    methods: str, pattern: str, find_sources: FindSources, plan: PlanForward | None = None
) -> ProtocolRoute:
    route = ProtocolRoute(methods, pattern, _RETRIEVE, find_sources, parse_body=optional_json)
    return replace(route, plan_forward=plan, forwards_unchanged=True)


def filtered(route: ProtocolRoute, plan: PlanForward) -> ProtocolRoute:
    """Return `route` with `plan` as its forward plan for an agent that may not see every document.
    For other agents its own plan stays."""
    unfiltered = route.plan_forward

    def forward(
        server: OpenSearchServer, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        chosen = unfiltered if visibility.levels is None else plan
        if chosen is None:
            return FORWARD_UNCHANGED
        return chosen(server, request, sources, visibility)

    return replace(route, plan_forward=forward, filters_documents=True)


def filtering_route(
    route: ProtocolRoute,
    plan: PlanForward,
    can_filter: Callable[[OpenSearchServer, RoutedRequest], bool],
) -> ProtocolRoute:
    """Return `route`, extended so that it withholds documents by their levels if the request allows
    it (`can_filter`)."""
    filtering = filtered(route, plan)

    def refine(server: OpenSearchServer, request: RoutedRequest) -> ProtocolRoute:
        # `can_filter` reads the whole body, so it isn't called where documents have no levels.
        filters = server.level_field is not None and can_filter(server, request)
        return filtering if filters else route

    return replace(route, refine=refine)


def search_route(methods: str, pattern: str, plan: PlanForward) -> ProtocolRoute:
    """Return a route for searches. `plan` is its forward plan for an agent that may see every
    document."""
    route = read_route(methods, pattern, search.sources_of_search, plan)
    return filtering_route(route, search.filter_search, search.can_filter)


def language_route(pattern: str, find_sources: FindSources) -> ProtocolRoute:
    """Return a route for queries in a query language, whose responses may have a cursor."""
    return read_route("GET POST", pattern, find_sources, search.remember)


def metadata_route(methods: str, pattern: str, find_sources: FindSources) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, _METADATA, find_sources)


def composed_route(methods: str, pattern: str, compose: ComposeResponse) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, _METADATA, compose_response=compose)


def listing_route(pattern: str) -> ProtocolRoute:
    """Return a route whose response is an object with one member per index. The request is
    authorized by the index names in the path; if they are patterns, the response is filtered
    instead."""
    route = metadata_route("GET HEAD", pattern, reads_and_writes.sources_of_metadata)
    composed = composed_route("GET HEAD", pattern, reads_and_writes.list_by_index)

    def refine(_server: OpenSearchServer, request: RoutedRequest) -> ProtocolRoute:
        # A pattern may cover indices that the agent may not see. They are left out of the response,
        # where a judgement by name would deny the whole request.
        return composed if any(map(is_pattern, path_names(request))) else route

    return replace(route, refine=refine)


def write_route(
    methods: str, pattern: str, find_sources: FindSources = reads_and_writes.sources_of_write
) -> ProtocolRoute:
    return ProtocolRoute(methods, pattern, _WRITE, find_sources, hint_source)


def renaming_route(methods: str, pattern: str) -> ProtocolRoute:
    # Forget names before and after: a look-up in between could have cached either meaning.
    forget = OpenSearchServer.forget_names
    return replace(write_route(methods, pattern), before_forward=forget, after_forward=forget)


def release_route(pattern: str) -> ProtocolRoute:
    """Return a route by which the caller releases continuations on the server."""
    # Open, since it reads no source. `release` checks that the continuations are the caller's own.
    return ProtocolRoute("DELETE", pattern, _OPEN, search.release, parse_body=optional_json)


_I = "/{index}"
_GP = "GET POST"
_ANY = "GET HEAD POST PUT DELETE"
_SCROLL = "/_search/scroll"
_SQL = ("/_sql", "/_plugins/_sql", "/_opendistro/_sql")
# The paths that end a continuation.
_RELEASES = (
    _SCROLL, f"{_SCROLL}/{{scroll}}", "/_search/point_in_time", "/_pit", "/_async_search/{id}",
    "/_plugins/_asynchronous_search/{id}", "/_sql/async/delete/{id}", "/_query/async/{id}",
)  # fmt: skip
# The paths that show how an index is set up. Without an index before it, each shows all indices.
_INDEX_LISTS = (
    "/_mapping", "/_mapping/field/{fields}", "/_settings", "/_settings/{name}", "/_alias",
    "/_alias/{name}",
)  # fmt: skip
_STATISTICS = (
    f"{_I}/_stats", f"{_I}/_stats/{{metric}}", f"{_I}/_segments", f"{_I}/_recovery",
    "/_cat/count/{index}", "/_cluster/health/{index}", "/_data_stream/{name}/_stats",
)  # fmt: skip
# These copy an index. The copy is an index of its own, which policies would judge by its name.
_COPIES = ("_clone", "_split", "_shrink", "_downsample")
# These change what names mean, or how an index is run.
_ADMIN_APIS = (
    "_alias/{name}", "_aliases", "_aliases/{name}", "_block/{block}", "_close", "_freeze", "_open",
    "_rollover", "_rollover/{new}", "_settings", "_unfreeze", "_upgrade",
)  # fmt: skip


async def _health(_server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return no sources, since the health of the cluster alone reveals nothing about an index.
    Raises `Malformed` for a level that shows indices."""
    level = request_parts.parse_query(request.target.query).get("level", "cluster")
    if level != "cluster":
        raise Malformed(f"`level={level[:64]}` shows indices: use `level=cluster`")
    return ()


_READ_DOCUMENT = ProtocolRoute(
    "GET", f"{_I}/_doc/{{id}}", _RETRIEVE, reads_and_writes.sources_of_path
)

# INVARIANT: a literal segment comes before a `{parameter}` in its position, as in the servers' own
# router. No index begins with `_`: `protocol.py` checks that.
ROUTES = (
    # The server's name and version.
    ProtocolRoute("GET HEAD", "/", _OPEN),
    ProtocolRoute("GET", "/_cluster/health", _OPEN, _health),
    # Continuations come before searches, since `scroll` is in a place where a name could be.
    *map(release_route, _RELEASES),
    *(
        filtered(read_route(methods, pattern, find, search.remember), search.filter_page)
        for methods, pattern, find in (
            (_GP, _SCROLL, search.sources_of_scroll),
            (_GP, f"{_SCROLL}/{{scroll}}", search.sources_of_scroll),
            ("GET", "/_async_search/{id}", search.sources_of_id),
            ("GET", "/_plugins/_asynchronous_search/{id}", search.sources_of_id),
        )
    ),
    read_route("GET", "/_sql/async/{id}", search.sources_of_id, search.remember),
    read_route("GET", "/_query/async/{id}", search.sources_of_id, search.remember),
    metadata_route("GET", "/_async_search/status/{id}", search.sources_of_id),
    metadata_route("GET", "/_sql/async/status/{id}", search.sources_of_id),
    # A search pipeline is not a continuation.
    ProtocolRoute("GET PUT DELETE", "/_search/pipeline", _ADMIN),
    ProtocolRoute("GET PUT DELETE", "/_search/pipeline/{id}", _ADMIN),
    # Concerns the points in time of all callers at once.
    ProtocolRoute(f"{_GP} DELETE", "/_search/point_in_time/_all", _ADMIN),
    search_route(_GP, "/_search", search.forward_search),
    search_route(_GP, f"{_I}/_search", search.forward_search),
    *(
        search_route("POST", f"{start}/{what}", search.remember)
        for what in ("_async_search", "_plugins/_asynchronous_search")
        for start in ("", _I)
    ),
    *(
        filtering_route(
            replace(
                read_route(_GP, f"{start}/_msearch", multi_search.sources_of_searches),
                parse_body=ndjson,
            ), multi_search.filter_searches, multi_search.can_filter_searches,
        )
        for start in ("", _I)
    ),
    *(
        filtering_route(route, multi_search.filter_documents, multi_search.can_filter_documents)
        for route in (
            read_route(_GP, "/_mget", multi_search.sources_of_documents),
            read_route(_GP, f"{_I}/_mget", multi_search.sources_of_documents),
            _READ_DOCUMENT,
        )
    ),
    # The following are not filtered: their responses don't show which documents were used.
    replace(_READ_DOCUMENT, methods="HEAD"),
    replace(_READ_DOCUMENT, methods="GET HEAD", pattern=f"{_I}/_source/{{id}}"),
    # Templates have rows of their own, so that the denial says why.
    *(
        read_route(_GP, f"{start}/{what}", find_sources)
        for what, find_sources in (
            ("_count", search.sources_of_search),
            ("_field_caps", reads_and_writes.sources_of_query),
            ("_mtermvectors", multi_search.sources_of_documents),
            ("_rank_eval", reads_and_writes.sources_of_ranking),
            ("_search_shards", search.sources_of_search),
            ("_search/template", reads_and_writes.refuse_template),
            ("_msearch/template", reads_and_writes.refuse_template),
            ("_validate/query", search.sources_of_search),
        )
        for start in ("", _I)
    ),
    read_route(_GP, f"{_I}/_explain/{{id}}", search.sources_of_search),
    read_route(_GP, f"{_I}/_termvectors", reads_and_writes.sources_of_term_vectors),
    read_route(_GP, f"{_I}/_termvectors/{{id}}", reads_and_writes.sources_of_term_vectors),
    *(
        language_route(f"{start}{what}", multi_search.sources_of_sql)
        for start in _SQL
        for what in ("", "/translate" if start == "/_sql" else "/_explain")
    ),
    *(
        language_route(f"{start}/_ppl{what}", multi_search.sources_of_ppl)
        for start in ("/_plugins", "/_opendistro")
        for what in ("", "/_explain")
    ),
    language_route("/_query", multi_search.sources_of_esql),
    language_route("/_query/async", multi_search.sources_of_esql),
    ProtocolRoute(
        "POST", "/_query/async/{id}/stop", _RETRIEVE, search.sources_of_id,
        plan_forward=search.remember,
    ),
    *(
        ProtocolRoute(
            "POST", f"{start}/close", _OPEN, multi_search.close_cursor, parse_body=optional_json
        )
        for start in _SQL
    ),
    # Opening a point in time reads nothing yet, but its id stands for the indices from now on.
    *(
        ProtocolRoute(
            "POST", f"{_I}/{what}", _METADATA, reads_and_writes.sources_of_query,
            parse_body=optional_json, plan_forward=search.remember, forwards_unchanged=True,
        )
        for what in ("_search/point_in_time", "_pit")
    ),
    *(listing_route(f"{_I}{what}") for what in _INDEX_LISTS),
    *(composed_route("GET", each, reads_and_writes.list_by_index) for each in _INDEX_LISTS),
    composed_route("GET", "/_aliases", reads_and_writes.list_by_index),
    replace(
        composed_route(_GP, "/_resolve/index/{name}", reads_and_writes.list_resolution),
        parse_body=optional_json,
    ),
    composed_route("GET", "/_data_stream", reads_and_writes.list_data_streams),
    composed_route("GET", "/_data_stream/{name}", reads_and_writes.list_data_streams),
    # A name here may be an alias or a pattern, so these are filtered, and not judged by their path.
    *(
        composed_route("GET", f"/_cat/{what}", reads_and_writes.list_cat_table)
        for what in ("indices", "indices/{index}", "aliases", "aliases/{name}")
    ),
    *(metadata_route("GET", each, reads_and_writes.sources_of_metadata) for each in _STATISTICS),
    write_route("POST", f"{_I}/_doc"),
    write_route("PUT POST DELETE", f"{_I}/_doc/{{id}}"),
    write_route("PUT POST", f"{_I}/_create/{{id}}"),
    *(
        replace(write_route("POST", f"{_I}/{what}", find_sources), parse_body=optional_json)
        for what, find_sources in (
            ("_update/{id}", reads_and_writes.sources_of_update),
            ("_delete_by_query", reads_and_writes.sources_of_write_by_query),
            ("_update_by_query", reads_and_writes.sources_of_write_by_query),
        )
    ),
    write_route("PUT POST", f"{_I}/_mapping"),
    # A bulk body may name any index, so the path alone is no hint.
    *(
        ProtocolRoute(
            "PUT POST", f"{start}/_bulk", _WRITE, reads_and_writes.sources_of_bulk,
            reads_and_writes.hint_of_bulk, hint_in_body=True, parse_body=ndjson,
        )
        for start in ("", _I)
    ),
    *(write_route(_GP, f"{_I}/{what}") for what in ("_refresh", "_flush")),
    ProtocolRoute(_GP, "/_refresh", _WRITE, reads_and_writes.sources_of_write),
    ProtocolRoute(_GP, "/_flush", _WRITE, reads_and_writes.sources_of_write),
    renaming_route("PUT DELETE", "/_data_stream/{name}"),
    *(ProtocolRoute("PUT POST", f"{_I}/{what}/{{target}}", _BULK) for what in _COPIES),
    *(ProtocolRoute(_ANY, f"{_I}/{what}", _ADMIN) for what in _ADMIN_APIS),
    listing_route(_I),
    renaming_route("PUT DELETE", _I),
)  # fmt: skip
