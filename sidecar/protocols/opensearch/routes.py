"""Every route of OpenSearch and Elasticsearch that is judged (data-sources.md 5.3;
opensearch-api-specification, the servers' REST handlers, and the clients opensearch-py 3.2 and
elasticsearch 9.5). What is closed by its first segment is in `closed.py`.
"""

from dataclasses import replace

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest, SourceRef
from sidecar.protocols.opensearch import lists, parameters, searching
from sidecar.protocols.opensearch import multi_search as several
from sidecar.protocols.opensearch import query_languages as languages
from sidecar.protocols.opensearch import reads as reading
from sidecar.protocols.opensearch import writes as writing
from sidecar.protocols.opensearch.bodies import json_or_none, lines
from sidecar.protocols.opensearch.route_builders import (
    asking,
    freed,
    listed,
    naming,
    read,
    search,
    search_later,
    sieved,
    write,
)
from sidecar.protocols.opensearch.server import OpenSearchServer, hint
from sidecar.protocols.route_table import ProtocolRoute, RouteClass

_I = "/{index}"
_RETRIEVE, _WRITE, _OPEN = RouteClass.RETRIEVE, RouteClass.WRITE, RouteClass.OPEN
_BULK, _ADMIN = RouteClass.BULK, RouteClass.ADMIN
_GP = "GET POST"
_ANY = "GET HEAD POST PUT DELETE"

# A copy is an index of its own, and would be judged by its own name.
_COPIES = ("_clone", "_split", "_shrink", "_downsample")

# What names mean, and how an index is run.
_RULES = (
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


async def _health(_server: OpenSearchServer, asked: RoutedRequest) -> tuple[SourceRef, ...]:
    """The cluster's health, as long as it is told of the cluster alone."""
    if parameters.parameters(asked.target.query).get("level", "cluster") != "cluster":
        raise Malformed("the cluster's health is told without its indices")
    return ()


_DOCUMENT = ProtocolRoute("GET", f"{_I}/_doc/{{id}}", RouteClass.RETRIEVE, reading.by_path)
_MGET = several.by_documents

# INVARIANT: a literal segment stands above a `{parameter}` in its place, as in the servers' own
# router; and what stands in an index's place never begins with `_`.
ROUTES = (
    ProtocolRoute("GET HEAD", "/", _OPEN),
    ProtocolRoute("GET", "/_cluster/health", _OPEN, _health),
    # Continuations before searches: `scroll` stands where a name would.
    freed("DELETE", _SCROLL),
    freed("DELETE", f"{_SCROLL}/{{scroll}}"),
    freed("DELETE", "/_search/point_in_time"),
    freed("DELETE", "/_pit"),
    freed("DELETE", "/_async_search/{id}"),
    freed("DELETE", "/_plugins/_asynchronous_search/{id}"),
    freed("DELETE", "/_sql/async/delete/{id}"),
    freed("DELETE", "/_query/async/{id}"),
    *(
        replace(
            read(_GP, pattern, searching.by_scroll),
            plan_forward=searching.next_page,
            filters_documents=True,
        )
        for pattern in (_SCROLL, f"{_SCROLL}/{{scroll}}")
    ),
    *(
        replace(
            read("GET", pattern, searching.by_identity),
            plan_forward=prepared,
            filters_documents=sieved,
        )
        for pattern, prepared, sieved in (
            ("/_async_search/{id}", searching.later, True),
            ("/_plugins/_asynchronous_search/{id}", searching.later, True),
            ("/_sql/async/{id}", languages.learning, False),
            ("/_query/async/{id}", languages.learning, False),
        )
    ),
    ProtocolRoute("GET", "/_async_search/status/{id}", RouteClass.METADATA, searching.by_identity),
    ProtocolRoute("GET", "/_sql/async/status/{id}", RouteClass.METADATA, searching.by_identity),
    # A pipeline of searches, which is no continuation.
    ProtocolRoute("GET PUT DELETE", "/_search/pipeline", _ADMIN),
    ProtocolRoute("GET PUT DELETE", "/_search/pipeline/{id}", _ADMIN),
    ProtocolRoute(f"{_GP} DELETE", "/_search/point_in_time/_all", _ADMIN),
    search(_GP, "/_search"),
    search(_GP, f"{_I}/_search"),
    search_later("POST", "/_async_search"),
    search_later("POST", f"{_I}/_async_search"),
    search_later("POST", "/_plugins/_asynchronous_search"),
    search_later("POST", f"{_I}/_plugins/_asynchronous_search"),
    *(
        sieved(
            ProtocolRoute(_GP, pattern, RouteClass.RETRIEVE, several.by_searches, parse_body=lines),
            several.sieved_searches,
            several.fits_searches,
        )
        for pattern in ("/_msearch", f"{_I}/_msearch")
    ),
    *(
        sieved(read(_GP, pattern, _MGET), several.sieved_documents, several.fits_document)
        for pattern in ("/_mget", f"{_I}/_mget")
    ),
    sieved(_DOCUMENT, several.sieved_documents, several.fits_document),
    # What follows is not narrowed: nothing in these answers could prove what they were made of.
    ProtocolRoute("HEAD", f"{_I}/_doc/{{id}}", _RETRIEVE, reading.by_path),
    ProtocolRoute("GET HEAD", f"{_I}/_source/{{id}}", _RETRIEVE, reading.by_path),
    *(
        read(_GP, f"{start}/{what}", places)
        for what, places in (
            ("_count", searching.by_search),
            ("_field_caps", reading.by_query),
            ("_mtermvectors", several.by_documents),
            ("_rank_eval", reading.by_rank),
            ("_search_shards", searching.by_search),
            ("_search/template", reading.by_template),
            ("_msearch/template", reading.by_template),
            ("_validate/query", searching.by_search),
        )
        for start in ("", _I)
    ),
    read(_GP, f"{_I}/_explain/{{id}}", searching.by_search),
    read(_GP, f"{_I}/_termvectors", reading.by_vectors),
    read(_GP, f"{_I}/_termvectors/{{id}}", reading.by_vectors),
    *(
        asking(f"{start}{what}", languages.by_sql)
        for start in ("/_sql", "/_plugins/_sql", "/_opendistro/_sql")
        for what in ("", "/translate" if start == "/_sql" else "/_explain")
    ),
    *(
        asking(f"{start}{what}", languages.by_ppl)
        for start in ("/_plugins/_ppl", "/_opendistro/_ppl")
        for what in ("", "/_explain")
    ),
    asking("/_query", languages.by_esql),
    asking("/_query/async", languages.by_esql),
    ProtocolRoute(
        "POST",
        "/_query/async/{id}/stop",
        _RETRIEVE,
        searching.by_identity,
        plan_forward=languages.learning,
    ),
    *(
        ProtocolRoute(
            "POST", f"{start}/close", _OPEN, languages.closed_cursor, parse_body=json_or_none
        )
        for start in ("/_sql", "/_plugins/_sql", "/_opendistro/_sql")
    ),
    *(
        ProtocolRoute(
            "POST",
            pattern,
            RouteClass.METADATA,
            reading.by_query,
            parse_body=json_or_none,
            plan_forward=languages.learning,
        )
        for pattern in (f"{_I}/_search/point_in_time", f"{_I}/_pit")
    ),
    *(
        listed(f"{_I}{what}")
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
        ProtocolRoute("GET", pattern, RouteClass.METADATA, compose_response=lists.by_name)
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
        parse_body=json_or_none,
        compose_response=lists.resolved,
    ),
    *(
        ProtocolRoute("GET", f"/{what}", RouteClass.METADATA, compose_response=composed)
        for what, composed in (
            ("_data_stream", lists.streams),
            ("_data_stream/{name}", lists.streams),
            ("_cat/indices", lists.table),
            ("_cat/indices/{index}", lists.table),
            ("_cat/aliases", lists.table),
            ("_cat/aliases/{name}", lists.table),
        )
    ),
    *(
        ProtocolRoute("GET", f"{_I}/{what}", RouteClass.METADATA, reading.told)
        for what in ("_stats", "_stats/{metric}", "_segments", "_recovery")
    ),
    *(
        ProtocolRoute("GET", pattern, RouteClass.METADATA, reading.told_of_last)
        for pattern in (
            "/_cat/count/{index}",
            "/_cluster/health/{index}",
            "/_data_stream/{name}/_stats",
        )
    ),
    write("POST", f"{_I}/_doc"),
    write("PUT POST DELETE", f"{_I}/_doc/{{id}}"),
    write("PUT POST", f"{_I}/_create/{{id}}"),
    ProtocolRoute(
        "POST", f"{_I}/_update/{{id}}", _WRITE, writing.by_update, hint, parse_body=json_or_none
    ),
    write("PUT POST", f"{_I}/_mapping"),
    *(
        ProtocolRoute("PUT POST", f"{start}/_bulk", _WRITE, writing.by_lines, parse_body=lines)
        for start in ("", _I)
    ),
    *(
        ProtocolRoute(
            "POST", f"{_I}/{what}", _WRITE, writing.by_search, hint, parse_body=json_or_none
        )
        for what in ("_delete_by_query", "_update_by_query")
    ),
    *(write("GET POST", f"{_I}/{what}") for what in ("_refresh", "_flush")),
    *(ProtocolRoute(_GP, f"/{what}", _WRITE, writing.by_path) for what in ("_refresh", "_flush")),
    naming("PUT DELETE", "/_data_stream/{name}", writing.by_own_path),
    *(ProtocolRoute("PUT POST", f"{_I}/{what}/{{target}}", _BULK) for what in _COPIES),
    *(ProtocolRoute(_ANY, f"{_I}/{what}", _ADMIN) for what in _RULES),
    listed(_I),
    naming("PUT DELETE", _I),
)
