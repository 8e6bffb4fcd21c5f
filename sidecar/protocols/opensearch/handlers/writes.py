"""The sources of writes, which are authorized like reads where the configuration allows writes."""

from functools import cache, partial
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest, Unresolved
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch.index_names import parse_names
from sidecar.protocols.opensearch.references import names_in_search
from sidecar.protocols.opensearch.server import OpenSearchServer, requested_names
from sidecar.protocols.route_table import Sources

_ACTIONS = frozenset(("create", "delete", "index", "update"))

# The members of a bulk action. `pipeline` is missing: a pipeline may send the document to another
# index.
_ACTION_MEMBERS = frozenset((
    "_id", "_index", "_routing", "if_primary_term", "if_seq_no", "op_type", "require_alias",
    "require_data_stream", "retry_on_conflict", "routing", "version", "version_type",
))  # fmt: skip

_UPDATE_RETURNS = "an update with `_source` returns the document, whose level is not checked"


async def sources_of_write(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources in the path; all indices if it names none."""
    # With `all`, every index that a pattern could cover is judged, whatever the API's own default.
    return await server.sources(requested_names(request), request, _query(request), "all")


async def sources_of_update(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources of an update, whose response may contain the document."""
    query = _query(request)
    # An agent may be allowed to write a document whose level it may not see.
    if server.level_field is not None and _returns_document(query, request.body or {}):
        raise Unresolved(_UPDATE_RETURNS)
    return await server.sources(requested_names(request), request, query, "all")


def _returns_document(query: dict[str, str], body: dict[str, Any]) -> bool:
    return any(name.startswith("_source") for name in (*query, *body))


async def sources_of_write_by_query(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources in the path, and those that the query names."""
    named = names_in_search(request.body, request.budget)
    names = [*requested_names(request), *sorted(named)]
    return await server.sources(names, request, _query(request), "all")


async def sources_of_bulk(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """The sources of many writes in one body."""
    query = _query(request)
    names: list[str] = []
    # Each action except a deletion is followed by its document. Only its place says whether a line
    # is an action or a document.
    lines = iter(request.body)
    default = cache(partial(requested_names, request))
    for line in lines:
        request.budget.check()
        action, index = _parse_action(line)
        document = {} if action == "delete" else next(lines, None)
        if document is None:
            raise Malformed("the last write of the body has no document")
        # A `_source` parameter in the query applies to every update in the body.
        updates = action == "update" and server.level_field is not None
        if updates and _returns_document(query, document):
            raise Unresolved(_UPDATE_RETURNS)
        names += default() if index is None else parse_names(index)
    if not names:
        raise Malformed("the body contains no write")
    return await server.sources(names, request, query, "all")


def _parse_action(line: dict[str, Any]) -> tuple[str, Any]:
    """A line's action, and the index that it names."""
    if len(line) != 1:
        raise Malformed("a line of the body must have exactly one action")
    [(action, target)] = line.items()
    if action not in _ACTIONS or not isinstance(target, dict):
        raise Malformed(f"`{action[:32]}` is not a write: use create, delete, index or update")
    # An unknown member could lead the document to another index.
    for key in target:
        if key not in _ACTION_MEMBERS:
            raise Unresolved(f"`{key[:64]}` is not supported in a bulk action")
    return action, target.get("_index")


def _query(request: RoutedRequest) -> dict[str, str]:
    return parameters.parse_known(request.target.query, parameters.WRITE)
