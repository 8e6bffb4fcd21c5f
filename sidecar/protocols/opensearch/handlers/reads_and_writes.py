"""Finds the sources of requests whose responses pass unchanged, and composes lists of indices from
those that the agent may see.

Each list is fetched with the agent's own credentials. An alias is visible if one of its indices is.
"""

from functools import cache, partial
from typing import Any

from policies.ground.errors import Malformed
from sidecar.http.headers import without_whole_body_fields
from sidecar.protocols.opensearch import request_parts
from sidecar.protocols.opensearch.indices import (
    alias_targets,
    is_pattern,
    parse_names,
    parse_resolution,
    source_name,
)
from sidecar.protocols.opensearch.request_parts import names_in_query, names_in_search
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    object_list,
    parse_json,
    read_parameters,
    requested_names,
)
from sidecar.protocols.protocol import (
    FetchedResponse,
    Permits,
    RoutedRequest,
    SourceRef,
    Sources,
    Unresolved,
)
from sidecar.protocols.shared.responses import expect_list, expect_object, to_json

_TEMPLATE = "a search template becomes a search on the server, so its indices are unknown"


async def sources_of_path(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources that the path names, for a request whose body names no other index."""
    return await server.sources(requested_names(request), request, read_parameters(request))


async def sources_of_query(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources that the path names, and those that the queries in the body name; for a
    request that is not a search."""
    names = [*requested_names(request), *sorted(names_in_query(request.body, request.budget))]
    return await server.sources(names, request, read_parameters(request))


async def sources_of_ranking(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of the searches in a ranking evaluation. Raises `Unresolved` if they are
    templates."""
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
    """Raise `Unresolved` for a search template: the server renders it, and it may become a search
    of any index."""
    raise Unresolved(_TEMPLATE)


async def sources_of_term_vectors(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of a request for a document's term vectors. The body may name another
    index than the path."""
    body = request.body or {}
    names = list(requested_names(request))
    if "_index" in body:
        names += parse_names(body["_index"])
    # A document sent along in the request is data, not a query.
    rest = {key: body[key] for key in body if key not in ("_index", "doc")}
    names += sorted(names_in_query(rest, request.budget))
    return await server.sources(names, request, read_parameters(request))


async def sources_of_metadata(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of a metadata request: the indices that the path names, or all indices if
    it names none."""
    known = request_parts.METADATA_PARAMETERS | request_parts.CAT_PARAMETERS
    query = request_parts.parse_known(request.target.query, known)
    # With `all`, every index that a pattern could cover is judged, whatever the API's own default.
    return await server.sources(requested_names(request), request, query, "all")


_ACTIONS = frozenset(("create", "delete", "index", "update"))

# The members of a bulk action. `pipeline` is missing: a pipeline may send the document to another
# index.
_ACTION_MEMBERS = frozenset((
    "_id", "_index", "_routing", "if_primary_term", "if_seq_no", "op_type", "require_alias",
    "require_data_stream", "retry_on_conflict", "routing", "version", "version_type",
))  # fmt: skip

_UPDATE_RETURNS = "an update with `_source` returns the document, whose level is not checked"


async def sources_of_write(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources that the path of a write names; all indices if it names none."""
    # With `all`, every index that a pattern could cover is judged, whatever the API's own default.
    return await server.sources(requested_names(request), request, _query(request), "all")


async def sources_of_update(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of an update. Raises `Unresolved` if its response would contain the
    document, whose level the agent may not be allowed to see."""
    query = _query(request)
    # An agent may be allowed to write a document whose level it may not see.
    if server.level_field is not None and _returns_document(query, request.body or {}):
        raise Unresolved(_UPDATE_RETURNS)
    return await server.sources(requested_names(request), request, query, "all")


def _returns_document(query: dict[str, str], body: dict[str, Any]) -> bool:
    return any(name.startswith("_source") for name in (*query, *body))


async def sources_of_write_by_query(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources that the path of a write by query names, and those that the query
    names."""
    named = names_in_search(request.body, request.budget)
    names = [*requested_names(request), *sorted(named)]
    return await server.sources(names, request, _query(request), "all")


async def sources_of_bulk(server: OpenSearchServer, request: RoutedRequest) -> Sources:
    """Return the sources of a bulk request, which has many writes in one body."""
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


def hint_of_bulk(server: OpenSearchServer, request: RoutedRequest) -> SourceRef | None:
    """Return the index of the first write of a bulk request; None if that names several, or a
    pattern."""
    if not request.body:
        return None
    _, index = _parse_action(request.body[0])
    name, *more = requested_names(request) if index is None else parse_names(index)
    return None if more or is_pattern(name) else server.source_names.of(name)


def _parse_action(line: dict[str, Any]) -> tuple[str, Any]:
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
    return request_parts.parse_known(request.target.query, request_parts.WRITE_PARAMETERS)


async def list_by_index(
    server: OpenSearchServer, request: RoutedRequest, permits: Permits
) -> FetchedResponse:
    request_parts.parse_known(request.target.query, request_parts.METADATA_PARAMETERS)
    # Called only for its checks: the list is filtered by index, whatever the names stand for.
    if request.path_params:
        parse_names(request.path_params[0])
    response, body = await _fetch(request)
    found = expect_object(body, "list")
    # If some of the names don't exist, the error is a member beside the indices that do exist.
    of_error = {"error", "status"} if response.status != 200 else set()
    source_of = server.source_names.of
    visible = {k: v for k, v in found.items() if k in of_error or permits(source_of(k))}
    if not visible and request.path_params and request.target.segments[0] == "_alias":
        # Answer exactly as for an alias that doesn't exist, including the status.
        missing = {"error": f"alias [{request.path_params[0]}] missing", "status": 404}
        return _compose(response._replace(status=404, reason="Not Found"), missing)
    return _compose(response, visible)


async def list_resolution(
    server: OpenSearchServer, request: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """Return the indices, aliases and data streams that a name stands for, without those that the
    agent may not see."""
    request_parts.parse_known(request.target.query, request_parts.METADATA_PARAMETERS)
    parse_names(request.path_params[0])
    if request.body:
        raise Unresolved("a body is not supported here: it may change which names are resolved")
    response, body = await _fetch(request)
    if response.status != 200:
        return response
    found = parse_resolution(body)
    source_names = server.source_names
    indices = found["indices"]
    visible = {each["name"] for each in indices if permits(source_names.of(source_name(each)))}
    streams = [each for each in found["data_streams"] if permits(source_names.of(each["name"]))]
    # A backing index is visible if its stream is.
    for stream in streams:
        visible.update(stream.get("backing_indices", ()))
    # An alias shows only its visible indices, and is hidden if it has none. It may point to an
    # index that the response doesn't list, so policies are asked about that one here.
    aliases = []
    for alias in found["aliases"]:
        all_targets = alias_targets(alias)
        seen = [each for each in all_targets if each in visible or permits(source_names.of(each))]
        if seen:
            aliases.append({**alias, "indices": seen})
    indices = [each for each in indices if each["name"] in visible]
    return _compose(response, {"indices": indices, "aliases": aliases, "data_streams": streams})


async def list_data_streams(
    server: OpenSearchServer, request: RoutedRequest, permits: Permits
) -> FetchedResponse:
    request_parts.parse_known(request.target.query, request_parts.METADATA_PARAMETERS)
    response, body = await _fetch(request)
    if response.status != 200:
        return response
    found = body.get("data_streams") if isinstance(body, dict) else None
    return _compose(response, {"data_streams": _visible_rows(server, found, "name", permits)})


async def list_cat_table(
    server: OpenSearchServer, request: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """Return a `_cat` table that has a column `index`, without the rows that the agent may not see.
    Raises `Malformed` unless the format is JSON: in other formats it isn't clear where a row
    ends."""
    query = request_parts.parse_known(request.target.query, request_parts.CAT_PARAMETERS)
    if query.get("format") != "json":
        raise Malformed("this list is filtered, so request it with `format=json`")
    response, body = await _fetch(request)
    if response.status != 200:
        return response
    return _compose(response, _visible_rows(server, body, "index", permits))


async def _fetch(request: RoutedRequest) -> tuple[FetchedResponse, Any]:
    response = await request.fetch(request.target.forwarded)
    return response, parse_json(response)


def _visible_rows(server: OpenSearchServer, found: Any, column: str, permits: Permits) -> list[Any]:
    rows = [each for each in expect_list(found, "list") if isinstance(each, dict)]
    named = [each for each in rows if isinstance(each.get(column), str) and each[column]]
    return [each for each in named if permits(server.source_names.of(each[column]))]


def _compose(response: FetchedResponse, visible: Any) -> FetchedResponse:
    fields = without_whole_body_fields(response.fields)
    return response._replace(fields=fields, body=to_json(visible))
