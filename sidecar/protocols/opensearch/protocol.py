"""The protocol of OpenSearch and Elasticsearch: finds the route of a request, denies the APIs that
are denied as a whole (`protocols/RULES.md`, Classes), and renders refusals in the form of the
servers' errors.

A source is an index or a data stream. No setting says which of the two servers a data source is:
where they differ, their paths differ too. A request that is in neither table is denied as
`unclassified_route`.
"""

from sidecar.http.request_target import Target
from sidecar.protocols.opensearch.routes import ROUTES
from sidecar.protocols.opensearch.server import OpenSearchServer
from sidecar.protocols.protocol import (
    FetchedResponse,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteMatch,
    RouteTable,
)
from sidecar.protocols.shared.responses import error_response

_TYPES = {400: "illegal_argument_exception", 403: "security_exception"}

# APIs by the first segment of their paths.
_BULK_APIS = frozenset((
    # These copy an index. The copy is an index of its own, which policies would judge by its name.
    "_reindex", "_create_from", "_snapshot", "_searchable_snapshots", "_slm", "_ccr", "_rollup",
    "_transform", "_remotestore", "_dangling",
    # An enrich policy copies an index; a watch and a machine learning job read one on their own.
    "_enrich", "_watcher", "_ml",
))  # fmt: skip
_ADMIN_APIS = frozenset((
    # These change what names point to.
    "_aliases", "_alias", "_index_template", "_component_template", "_template",
    # Stored scripts, pipelines and rules, which later run under a name.
    "_scripts", "_script_context", "_script_language", "_render", "_ingest", "_logstash",
    "_query_rules", "_synonyms", "_application", "_connector", "_inference",
    # The cluster, its nodes, its users, its tasks.
    "_autoscaling", "_cat", "_cluster", "_cluster_manager", "_delete_by_query", "_data_stream",
    "_encryption", "_features", "_health_report", "_ilm", "_info", "_insights", "_internal",
    "_license", "_lifecycle", "_list", "_ltr", "_migration", "_monitoring", "_nodes", "_profiling",
    "_project", "_project_routing", "_query", "_remote", "_rules", "_security", "_ssl", "_streams",
    "_tasks", "_text_structure", "_update_by_query", "_upgrade", "_wlm", "_xpack", "views",
))  # fmt: skip

# APIs by the second segment, after `_plugins` or its older name.
_PLUGIN_PREFIXES = frozenset(("_plugins", "_opendistro"))
_BULK_PLUGINS = frozenset(("_rollup", "_transform", "_replication", "_sm"))
_ADMIN_PLUGINS = frozenset((
    "_alerting", "_flow_framework", "_ism", "_knn", "_ltr", "_ml", "_neural", "_notifications",
    "_observability", "_query", "_refresh_search_analyzers", "_rules", "_search_relevance",
    "_security", "_security_analytics", "_sql", "_ppl", "_asynchronous_search", "_wlm",
    "geospatial", "insights", "ubi",
))  # fmt: skip


def blocked(method: str, target: Target) -> RouteMatch | None:
    """Return the route of a request to an API that is denied as a whole; None for any other
    request."""
    name = target.segments[0]
    path, bulk, admin = f"/{name}", _BULK_APIS, _ADMIN_APIS
    if name in _PLUGIN_PREFIXES and len(target.segments) > 1:
        name = target.segments[1]
        path, bulk, admin = f"{path}/{name}", _BULK_PLUGINS, _ADMIN_PLUGINS
    for names, route_class in ((bulk, RouteClass.BULK), (admin, RouteClass.ADMIN)):
        if name in names:
            return RouteMatch(ProtocolRoute(method, f"{path}/**", route_class), ())
    return None


class OpenSearch(OpenSearchServer):
    """The protocol of one OpenSearch or Elasticsearch server. It finds a request's route by its
    path; the route's handlers then read the body and the parameters."""

    def render_refusal(
        self, _request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse:
        # The servers' type of an error that is described by its status alone.
        type_ = _TYPES.get(refusal.status, "status_exception")
        cause = {"type": type_, "reason": refusal.message}
        # Clients show the first of the causes.
        own = {"error": {"root_cause": [cause], **cause}, "status": refusal.status}
        return error_response(refusal, own)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        found = self.table.match(method, target)
        # The table comes first: some APIs are denied as a whole, except for a few rows in it.
        if found is None:
            return blocked(method, target)
        # No index begins with `_`: as `{index}`, it is a part of the API that the table lacks.
        index = found.path_params[0] if found.route.pattern.startswith("/{index}") else ""
        return blocked(method, target) if (index.startswith("_") and index != "_all") else found


OpenSearch.table = RouteTable(ROUTES)
