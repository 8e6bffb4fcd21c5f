"""One OpenSearch or Elasticsearch, as its table tells its requests apart. A source is an index, or
a data stream. No setting says which of the two it is: their paths differ where they do.
"""

from sidecar.http.request_target import Target
from sidecar.protocols.opensearch.blocked_routes import closed
from sidecar.protocols.opensearch.routes import ROUTES
from sidecar.protocols.opensearch.server import OpenSearchServer
from sidecar.protocols.route_table import RouteMatch, RouteTable


class OpenSearch(OpenSearchServer):
    """What a request is, by its path: what its body and its parameters say, its row tells."""

    def match(self, method: str, target: Target) -> RouteMatch | None:
        found = _TABLE.match(method, target)
        if found is None or not _is_index(found):
            return closed(method, target)
        return found


def _is_index(found: RouteMatch) -> bool:
    """Whether what stands in an index's place can be one: no name begins with `_`, so there it is a
    part of the API that is not in the table."""
    if not found.route.pattern.startswith("/{index}"):
        return True
    return found.path_params[0][:1] != "_" or found.path_params[0] == "_all"


_TABLE = RouteTable(ROUTES)
