"""Lists of indices, composed from what the agent may see.

Each list is fetched with the agent's own credentials, and policies decide about each index in it.
An alias is visible if one of its indices is.
"""

from typing import Any

from policies.ground.errors import Malformed
from sidecar.http.headers import without_whole_body_fields
from sidecar.protocols.messages import FetchedResponse, Permits, RoutedRequest, Unresolved
from sidecar.protocols.opensearch import request_parts
from sidecar.protocols.opensearch.indices import (
    alias_targets,
    parse_names,
    parse_resolution,
    source_name,
)
from sidecar.protocols.opensearch.server import OpenSearchServer, parse_json
from sidecar.protocols.shared.responses import expect_list, expect_object, to_json


async def list_by_index(
    server: OpenSearchServer, request: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """Return an object with a member per index: mappings, settings, aliases."""
    request_parts.parse_known(request.target.query, request_parts.METADATA_PARAMETERS)
    # Called only for its checks: the list is filtered by index, whatever the names stand for.
    if request.path_params:
        parse_names(request.path_params[0])
    response, body = await _fetch(request)
    found = expect_object(body, "list")
    # If some of the names don't exist, the error is a member beside the indices that do exist.
    of_error = {"error", "status"} if response.status != 200 else set()
    visible = {
        name: value
        for name, value in found.items()
        if name in of_error or permits(server.source_names.of(name))
    }
    if not visible and request.path_params and request.target.segments[0] == "_alias":
        # Answer exactly as for an alias that doesn't exist, including the status.
        missing = {"error": f"alias [{request.path_params[0]}] missing", "status": 404}
        return _compose(response._replace(status=404, reason="Not Found"), missing)
    return _compose(response, visible)


async def list_resolution(
    server: OpenSearchServer, request: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """Return the indices, aliases and data streams that a name stands for."""
    request_parts.parse_known(request.target.query, request_parts.METADATA_PARAMETERS)
    parse_names(request.path_params[0])
    if request.body:
        raise Unresolved("a body is not supported here: it may change which names are resolved")
    response, body = await _fetch(request)
    if response.status != 200:
        return response
    found = parse_resolution(body)
    source_names = server.source_names
    visible = {
        each["name"] for each in found["indices"] if permits(source_names.of(source_name(each)))
    }
    streams = [each for each in found["data_streams"] if permits(source_names.of(each["name"]))]
    # A backing index is visible if its stream is.
    for stream in streams:
        visible.update(stream.get("backing_indices", ()))
    # An alias shows only its visible indices, and is hidden if it has none. It may point to an
    # index that the response doesn't list, so policies are asked about that one here.
    aliases = []
    for alias in found["aliases"]:
        targets = [
            each
            for each in alias_targets(alias)
            if each in visible or permits(source_names.of(each))
        ]
        if targets:
            aliases.append({**alias, "indices": targets})
    indices = [each for each in found["indices"] if each["name"] in visible]
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
    """Return a table of `_cat` with a column `index`. Only JSON can be filtered: in other formats
    it isn't clear where a row ends."""
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
    """Return the rows whose index the agent may see. A row that names no index is hidden."""
    return [
        row
        for row in expect_list(found, "list")
        if isinstance(row, dict)
        and isinstance(row.get(column), str)
        and row[column]
        and permits(server.source_names.of(row[column]))
    ]


def _compose(response: FetchedResponse, visible: Any) -> FetchedResponse:
    return response._replace(
        fields=without_whole_body_fields(response.fields), body=to_json(visible)
    )
