"""The protocol of OpenSearch and Elasticsearch. A source is an index or a data stream. No setting
says which of the two a server is: where they differ, their paths differ too.
"""

from sidecar.http.request_target import Target
from sidecar.protocols.messages import FetchedResponse, RefusalResponse, RoutedRequest
from sidecar.protocols.opensearch import errors
from sidecar.protocols.opensearch.blocked_routes import blocked
from sidecar.protocols.opensearch.routes import ROUTES
from sidecar.protocols.opensearch.server import OpenSearchServer
from sidecar.protocols.route_table import RouteMatch, RouteTable


class OpenSearch(OpenSearchServer):
    """Finds a request's route by its path. The route then reads its body and parameters."""

    def render_refusal(
        self, _request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse:
        return errors.render_refusal(refusal)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        found = _TABLE.match(method, target)
        # The table comes first: some APIs are denied as a whole, except for a few rows in it.
        if found is None or not _has_index(found):
            return blocked(method, target)
        return found


def _has_index(found: RouteMatch) -> bool:
    """Whether the segment matched by `{index}` can be an index. No index begins with `_`, so such a
    segment is a part of the API that the table doesn't have."""
    if not found.route.pattern.startswith("/{index}"):
        return True
    return found.path_params[0][:1] != "_" or found.path_params[0] == "_all"


_TABLE = RouteTable(ROUTES)
