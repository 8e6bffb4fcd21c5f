"""All routes of OpenSearch and Elasticsearch that are authorized (data-sources.md 5.3;
opensearch-api-specification, the servers' REST handlers, and the clients opensearch-py 3.2 and
elasticsearch 9.5). APIs that are denied as a whole are in `blocked_routes.py`.

Longer than 250 lines, so that the whole order of the table is in one place.
"""

from dataclasses import replace

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch.bodies import ndjson, optional_json
from sidecar.protocols.opensearch.handlers import (
    lists,
    multi_search,
    query_languages,
    reads,
    search,
    writes,
)
from sidecar.protocols.opensearch.route_builders import (
    async_search_route,
    filtering_route,
    language_route,
    listing_route,
    read_route,
    release_route,
    renaming_route,
    search_route,
    write_route,
)
from sidecar.protocols.opensearch.server import OpenSearchServer, hint_source
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, Sources

_I = "/{index}"
_RETRIEVE, _WRITE, _OPEN = RouteClass.RETRIEVE, RouteClass.WRITE, RouteClass.OPEN
_BULK, _ADMIN = RouteClass.BULK, RouteClass.ADMIN
_GP = "GET POST"
_ANY = "GET HEAD POST PUT DELETE"

# A copy is an index of its own, and policies would see its own name.
_COPIES = ("_clone", "_split", "_shrink", "_downsample")

# Change what names mean, or how an index is run.
_ADMIN_APIS = (
    "_alias/{name}",
    "_aliases",
    "_aliases/{name}",
    "_block/{block}",
    "_close",
    "_freeze",
    "_open",
    "_rollover",
    "_rollover/{new}",
    "_settings",
    "_unfreeze",
    "_upgrade",
)
_SCROLL = "/_search/scroll"


async def _health(_server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """None: the health of the cluster alone reveals nothing about an index."""
    level = parameters.parse_query(request.target.query).get("level", "cluster")
    if level != "cluster":
        raise Malformed(f"`level={level[:64]}` shows indices: use `level=cluster`")
    return ()


_DOCUMENT = ProtocolRoute("GET", f"{_I}/_doc/{{id}}", RouteClass.RETRIEVE, reads.sources_of_path)
_MGET = multi_search.sources_of_documents

# INVARIANT: a literal segment comes before a `{parameter}` in its position, as in the servers' own
# router. No index begins with `_`: `protocol.py` checks that.
ROUTES = (
    ProtocolRoute("GET HEAD", "/", _OPEN),
    ProtocolRoute("GET", "/_cluster/health", _OPEN, _health),
    # Continuations come before searches: `scroll` is where a name could be.
    release_route("DELETE", _SCROLL),
    release_route("DELETE", f"{_SCROLL}/{{scroll}}"),
    release_route("DELETE", "/_search/point_in_time"),
    release_route("DELETE", "/_pit"),
    release_route("DELETE", "/_async_search/{id}"),
    release_route("DELETE", "/_plugins/_asynchronous_search/{id}"),
    release_route("DELETE", "/_sql/async/delete/{id}"),
    release_route("DELETE", "/_query/async/{id}"),
    *(
        replace(
            read_route(_GP, pattern, search.sources_of_scroll),
            plan_forward=search.filter_scroll,
            filters_documents=True,
        )
        for pattern in (_SCROLL, f"{_SCROLL}/{{scroll}}")
    ),
    *(
        replace(
            read_route("GET", pattern, search.sources_of_id),
            plan_forward=plan,
            filters_documents=filters,
        )
        for pattern, plan, filters in (
            ("/_async_search/{id}", search.filter_async_result, True),
            ("/_plugins/_asynchronous_search/{id}", search.filter_async_result, True),
            ("/_sql/async/{id}", query_languages.remember_cursor, False),
            ("/_query/async/{id}", query_languages.remember_cursor, False),
        )
    ),
    ProtocolRoute("GET", "/_async_search/status/{id}", RouteClass.METADATA, search.sources_of_id),
    ProtocolRoute("GET", "/_sql/async/status/{id}", RouteClass.METADATA, search.sources_of_id),
    # A search pipeline is not a continuation.
    ProtocolRoute("GET PUT DELETE", "/_search/pipeline", _ADMIN),
    ProtocolRoute("GET PUT DELETE", "/_search/pipeline/{id}", _ADMIN),
    ProtocolRoute(f"{_GP} DELETE", "/_search/point_in_time/_all", _ADMIN),
    search_route(_GP, "/_search"),
    search_route(_GP, f"{_I}/_search"),
    async_search_route("POST", "/_async_search"),
    async_search_route("POST", f"{_I}/_async_search"),
    async_search_route("POST", "/_plugins/_asynchronous_search"),
    async_search_route("POST", f"{_I}/_plugins/_asynchronous_search"),
    *(
        filtering_route(
            ProtocolRoute(
                _GP,
                pattern,
                RouteClass.RETRIEVE,
                multi_search.sources_of_searches,
                parse_body=ndjson,
            ),
            multi_search.filter_searches,
            multi_search.can_filter_searches,
        )
        for pattern in ("/_msearch", f"{_I}/_msearch")
    ),
    *(
        filtering_route(
            read_route(_GP, pattern, _MGET),
            multi_search.filter_documents,
            multi_search.can_filter_documents,
        )
        for pattern in ("/_mget", f"{_I}/_mget")
    ),
    filtering_route(_DOCUMENT, multi_search.filter_documents, multi_search.can_filter_documents),
    # The following are not filtered: their responses don't show which documents were used.
    ProtocolRoute("HEAD", f"{_I}/_doc/{{id}}", _RETRIEVE, reads.sources_of_path),
    ProtocolRoute("GET HEAD", f"{_I}/_source/{{id}}", _RETRIEVE, reads.sources_of_path),
    *(
        read_route(_GP, f"{start}/{what}", find_sources)
        for what, find_sources in (
            ("_count", search.sources_of_search),
            ("_field_caps", reads.sources_of_query),
            ("_mtermvectors", multi_search.sources_of_documents),
            ("_rank_eval", reads.sources_of_ranking),
            ("_search_shards", search.sources_of_search),
            ("_search/template", reads.refuse_template),
            ("_msearch/template", reads.refuse_template),
            ("_validate/query", search.sources_of_search),
        )
        for start in ("", _I)
    ),
    read_route(_GP, f"{_I}/_explain/{{id}}", search.sources_of_search),
    read_route(_GP, f"{_I}/_termvectors", reads.sources_of_term_vectors),
    read_route(_GP, f"{_I}/_termvectors/{{id}}", reads.sources_of_term_vectors),
    *(
        language_route(f"{start}{what}", query_languages.sources_of_sql)
        for start in ("/_sql", "/_plugins/_sql", "/_opendistro/_sql")
        for what in ("", "/translate" if start == "/_sql" else "/_explain")
    ),
    *(
        language_route(f"{start}{what}", query_languages.sources_of_ppl)
        for start in ("/_plugins/_ppl", "/_opendistro/_ppl")
        for what in ("", "/_explain")
    ),
    language_route("/_query", query_languages.sources_of_esql),
    language_route("/_query/async", query_languages.sources_of_esql),
    ProtocolRoute(
        "POST",
        "/_query/async/{id}/stop",
        _RETRIEVE,
        search.sources_of_id,
        plan_forward=query_languages.remember_cursor,
    ),
    *(
        ProtocolRoute(
            "POST", f"{start}/close", _OPEN, query_languages.close_cursor, parse_body=optional_json
        )
        for start in ("/_sql", "/_plugins/_sql", "/_opendistro/_sql")
    ),
    *(
        ProtocolRoute(
            "POST",
            pattern,
            RouteClass.METADATA,
            reads.sources_of_query,
            parse_body=optional_json,
            plan_forward=query_languages.remember_cursor,
        )
        for pattern in (f"{_I}/_search/point_in_time", f"{_I}/_pit")
    ),
    *(
        listing_route(f"{_I}{what}")
        for what in (
            "/_mapping",
            "/_settings",
            "/_settings/{name}",
            "/_alias",
            "/_alias/{name}",
            "/_mapping/field/{fields}",
        )
    ),
    *(
        ProtocolRoute("GET", pattern, RouteClass.METADATA, compose_response=lists.list_by_index)
        for pattern in (
            "/_mapping",
            "/_mapping/field/{fields}",
            "/_settings",
            "/_settings/{name}",
            "/_alias",
            "/_aliases",
            "/_alias/{name}",
        )
    ),
    ProtocolRoute(
        _GP,
        "/_resolve/index/{name}",
        RouteClass.METADATA,
        parse_body=optional_json,
        compose_response=lists.list_resolution,
    ),
    *(
        ProtocolRoute("GET", f"/{what}", RouteClass.METADATA, compose_response=compose)
        for what, compose in (
            ("_data_stream", lists.list_data_streams),
            ("_data_stream/{name}", lists.list_data_streams),
            ("_cat/indices", lists.list_cat_table),
            ("_cat/indices/{index}", lists.list_cat_table),
            ("_cat/aliases", lists.list_cat_table),
            ("_cat/aliases/{name}", lists.list_cat_table),
        )
    ),
    *(
        ProtocolRoute("GET", f"{_I}/{what}", RouteClass.METADATA, reads.sources_of_metadata)
        for what in ("_stats", "_stats/{metric}", "_segments", "_recovery")
    ),
    *(
        ProtocolRoute("GET", pattern, RouteClass.METADATA, reads.sources_of_named_metadata)
        for pattern in (
            "/_cat/count/{index}",
            "/_cluster/health/{index}",
            "/_data_stream/{name}/_stats",
        )
    ),
    write_route("POST", f"{_I}/_doc"),
    write_route("PUT POST DELETE", f"{_I}/_doc/{{id}}"),
    write_route("PUT POST", f"{_I}/_create/{{id}}"),
    ProtocolRoute(
        "POST",
        f"{_I}/_update/{{id}}",
        _WRITE,
        writes.sources_of_update,
        hint_source,
        parse_body=optional_json,
    ),
    write_route("PUT POST", f"{_I}/_mapping"),
    *(
        ProtocolRoute(
            "PUT POST", f"{start}/_bulk", _WRITE, writes.sources_of_bulk, parse_body=ndjson
        )
        for start in ("", _I)
    ),
    *(
        ProtocolRoute(
            "POST",
            f"{_I}/{what}",
            _WRITE,
            writes.sources_of_write_by_query,
            hint_source,
            parse_body=optional_json,
        )
        for what in ("_delete_by_query", "_update_by_query")
    ),
    *(write_route("GET POST", f"{_I}/{what}") for what in ("_refresh", "_flush")),
    *(
        ProtocolRoute(_GP, f"/{what}", _WRITE, writes.sources_of_write)
        for what in ("_refresh", "_flush")
    ),
    renaming_route("PUT DELETE", "/_data_stream/{name}", writes.sources_of_named_write),
    *(ProtocolRoute("PUT POST", f"{_I}/{what}/{{target}}", _BULK) for what in _COPIES),
    *(ProtocolRoute(_ANY, f"{_I}/{what}", _ADMIN) for what in _ADMIN_APIS),
    listing_route(_I),
    renaming_route("PUT DELETE", _I),
)
