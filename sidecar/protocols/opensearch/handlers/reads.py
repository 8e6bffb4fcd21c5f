"""The sources of read requests whose responses pass unchanged."""

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch.index_names import parse_names
from sidecar.protocols.opensearch.references import names_in_query, names_in_search
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    object_list,
    read_parameters,
    requested_names,
)
from sidecar.protocols.route_table import Sources

_TEMPLATE = "a search template becomes a search on the server, so its indices are unknown"


async def sources_of_path(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources in the path, for a request whose body names no further index."""
    return await server.sources(requested_names(request), request, read_parameters(request))


async def sources_of_query(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources in the path, and in a body that contains queries but is not a search."""
    names = [*requested_names(request), *sorted(names_in_query(request.body, request.budget))]
    return await server.sources(names, request, read_parameters(request))


async def sources_of_ranking(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources of a ranking evaluation's searches, which must not be templates."""
    searches = object_list(request.body, "requests")
    request.budget.charge_parts(len(searches))
    for each in [request.body or {}, *searches]:
        if not {"templates", "template_id", "params"}.isdisjoint(each):
            raise Unresolved(_TEMPLATE)
    for each in searches:
        request.budget.check()
        search = each.get("request", {})
        if not isinstance(search, dict):
            raise Malformed("`request` must be a search")
        # Called for its checks: `sources_of_query` finds the names, at any depth.
        names_in_search(search, request.budget)
    return await sources_of_query(server, request)


async def refuse_template(_server: OpenSearchServer, _request: RoutedRequest) -> Sources:
    """Denies a template: the server renders it, and it may become a search of any index."""
    raise Unresolved(_TEMPLATE)


async def sources_of_term_vectors(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources of a document's terms. The body may name an index instead of the path's."""
    body = request.body or {}
    names = list(requested_names(request))
    if "_index" in body:
        names += parse_names(body["_index"])
    # A document sent along in the request is data, not a query.
    rest = {key: body[key] for key in body if key not in ("_index", "doc")}
    names += sorted(names_in_query(rest, request.budget))
    return await server.sources(names, request, read_parameters(request))


async def sources_of_metadata(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources of a request about the path's indices, or about all indices."""
    known = parameters.METADATA | parameters.CAT
    query = parameters.parse_known(request.target.query, known)
    # With `all`, every index that a pattern could cover is judged, whatever the API's own default.
    return await server.sources(requested_names(request), request, query, "all")
