"""APIs that are denied as a whole, whatever the rest of the path (data-sources.md R7): those that
control the cluster, copy a source, or read everything at once. Pure.

A request that neither this table nor the one in `routes.py` covers is denied as
`unclassified_route`, so that an upgrade of the server opens nothing.
"""

from sidecar.http.request_target import Target
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch

_BULK, _ADMIN = RouteClass.BULK, RouteClass.ADMIN

# By the first segment of the path.
_FIRST_SEGMENT = {
    # A copy is an index of its own, and policies would see its own name.
    "_reindex": _BULK,
    "_create_from": _BULK,
    "_snapshot": _BULK,
    "_searchable_snapshots": _BULK,
    "_slm": _BULK,
    "_ccr": _BULK,
    "_rollup": _BULK,
    "_transform": _BULK,
    "_remotestore": _BULK,
    "_dangling": _BULK,
    # An enrich policy copies an index; a watch and a machine learning job read one on their own.
    "_enrich": _BULK,
    "_watcher": _BULK,
    "_ml": _BULK,
    # Change what names point to.
    "_aliases": _ADMIN,
    "_alias": _ADMIN,
    "_index_template": _ADMIN,
    "_component_template": _ADMIN,
    "_template": _ADMIN,
    # Stored scripts, pipelines and rules, which later run under a name.
    "_scripts": _ADMIN,
    "_script_context": _ADMIN,
    "_script_language": _ADMIN,
    "_render": _ADMIN,
    "_ingest": _ADMIN,
    "_logstash": _ADMIN,
    "_query_rules": _ADMIN,
    "_synonyms": _ADMIN,
    "_application": _ADMIN,
    "_connector": _ADMIN,
    "_inference": _ADMIN,
    # The cluster, its nodes, its users, its tasks.
    "_autoscaling": _ADMIN,
    "_cat": _ADMIN,
    "_cluster": _ADMIN,
    "_cluster_manager": _ADMIN,
    "_delete_by_query": _ADMIN,
    "_data_stream": _ADMIN,
    "_encryption": _ADMIN,
    "_features": _ADMIN,
    "_health_report": _ADMIN,
    "_ilm": _ADMIN,
    "_info": _ADMIN,
    "_insights": _ADMIN,
    "_internal": _ADMIN,
    "_license": _ADMIN,
    "_lifecycle": _ADMIN,
    "_list": _ADMIN,
    "_ltr": _ADMIN,
    "_migration": _ADMIN,
    "_monitoring": _ADMIN,
    "_nodes": _ADMIN,
    "_profiling": _ADMIN,
    "_project": _ADMIN,
    "_project_routing": _ADMIN,
    "_query": _ADMIN,
    "_remote": _ADMIN,
    "_rules": _ADMIN,
    "_security": _ADMIN,
    "_ssl": _ADMIN,
    "_streams": _ADMIN,
    "_tasks": _ADMIN,
    "_text_structure": _ADMIN,
    "_update_by_query": _ADMIN,
    "_upgrade": _ADMIN,
    "_wlm": _ADMIN,
    "_xpack": _ADMIN,
    "views": _ADMIN,
}

# By the second segment, after `_plugins` or its older name.
_PLUGIN = {
    "_rollup": _BULK,
    "_transform": _BULK,
    "_replication": _BULK,
    "_sm": _BULK,
    "_alerting": _ADMIN,
    "_flow_framework": _ADMIN,
    "_ism": _ADMIN,
    "_knn": _ADMIN,
    "_ltr": _ADMIN,
    "_ml": _ADMIN,
    "_neural": _ADMIN,
    "_notifications": _ADMIN,
    "_observability": _ADMIN,
    "_query": _ADMIN,
    "_refresh_search_analyzers": _ADMIN,
    "_rules": _ADMIN,
    "_search_relevance": _ADMIN,
    "_security": _ADMIN,
    "_security_analytics": _ADMIN,
    "_sql": _ADMIN,
    "_ppl": _ADMIN,
    "_asynchronous_search": _ADMIN,
    "_wlm": _ADMIN,
    "geospatial": _ADMIN,
    "insights": _ADMIN,
    "ubi": _ADMIN,
}
_PLUGIN_PREFIXES = frozenset(("_plugins", "_opendistro"))


def blocked(method: str, target: Target) -> RouteMatch | None:
    """The row of an API that is denied as a whole; None for any other."""
    first = target.segments[0]
    if first in _PLUGIN_PREFIXES and len(target.segments) > 1:
        second = target.segments[1]
        route_class = _PLUGIN.get(second)
        pattern = f"/{first}/{second}/**"
    else:
        route_class = _FIRST_SEGMENT.get(first)
        pattern = f"/{first}/**"
    return (
        None if route_class is None else RouteMatch(ProtocolRoute(method, pattern, route_class), ())
    )
