"""Lists of indices, put together here of what may be seen.

Each is asked for in the agent's name and filtered by what policies say of each index; an alias is
seen where an index of its own is. Each function takes the server first, as a row of the table hands
it over.
"""

from typing import Any

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import without_whole_body_fields
from sidecar.protocols.messages import FetchedResponse, Permits, RoutedRequest, Unresolved
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch.indices import (
    items,
    lists,
    members,
    source_of,
)
from sidecar.protocols.opensearch.server import OpenSearchServer, loaded
from sidecar.protocols.shared.document_levels import to_json


async def by_name(
    server: OpenSearchServer, asked: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """An object with a member for each index: mappings, settings, aliases."""
    parameters.known(asked.target.query, parameters.TOLD)
    if asked.path_params:
        items(asked.path_params[0])
    answer, whole = await _asked_for(asked)
    if not isinstance(whole, dict):
        raise UpstreamFailed("the data source's list is not of a form known here")
    # Where some of the names are missing, it says so beside those that are not.
    beside = {"error", "status"} if answer.status != 200 else set()
    seen = {
        name: value
        for name, value in whole.items()
        if name in beside or permits(server.naming.of(name))
    }
    if not seen and asked.path_params and asked.target.segments[0] == "_alias":
        # As of one that there is not: the status must not tell either.
        missing = {"error": f"alias [{asked.path_params[0]}] missing", "status": 404}
        return _composed(answer._replace(status=404, reason="Not Found"), missing)
    return _composed(answer, seen)


async def resolved(
    server: OpenSearchServer, asked: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """Indices, aliases and data streams that a name stands for."""
    parameters.known(asked.target.query, parameters.TOLD)
    items(asked.path_params[0])
    if asked.body:
        raise Unresolved("what the body does to names is not known here")
    answer, whole = await _asked_for(asked)
    if answer.status != 200:
        return answer
    found = lists(whole)
    naming = server.naming
    visible = {index["name"] for index in found["indices"] if permits(naming.of(source_of(index)))}
    streams = [each for each in found["data_streams"] if permits(naming.of(each["name"]))]
    for stream in streams:
        visible.update(stream.get("backing_indices", ()))
    aliases = []
    for alias in found["aliases"]:
        seen = [each for each in members(alias) if each in visible or permits(naming.of(each))]
        if seen:
            aliases.append({**alias, "indices": seen})
    indices = [each for each in found["indices"] if each["name"] in visible]
    return _composed(answer, {"indices": indices, "aliases": aliases, "data_streams": streams})


async def streams(
    server: OpenSearchServer, asked: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """Data streams."""
    parameters.known(asked.target.query, parameters.TOLD)
    answer, whole = await _asked_for(asked)
    if answer.status != 200:
        return answer
    found = whole.get("data_streams") if isinstance(whole, dict) else None
    return _composed(answer, {"data_streams": _rows(server, found, "name", permits)})


async def table(
    server: OpenSearchServer, asked: RoutedRequest, permits: Permits
) -> FetchedResponse:
    """A table of `_cat` with a column `index`, in JSON: in any other format its rows can't be told
    from one another."""
    query = parameters.known(asked.target.query, parameters.TABLE)
    if query.get("format") != "json":
        raise Malformed("this list is filtered, so it is to be asked for with `format=json`")
    answer, whole = await _asked_for(asked)
    if answer.status != 200:
        return answer
    return _composed(answer, _rows(server, whole, "index", permits))


async def _asked_for(asked: RoutedRequest) -> tuple[FetchedResponse, Any]:
    answer = await asked.fetch(asked.target.forwarded)
    return answer, loaded(answer)


def _rows(server: OpenSearchServer, found: Any, column: str, permits: Permits) -> list[Any]:
    """The rows whose index may be seen; one that does not tell which it is of may not."""
    if not isinstance(found, list):
        raise UpstreamFailed("the data source's list is not of a form known here")
    return [
        row
        for row in found
        if isinstance(row, dict)
        and isinstance(row.get(column), str)
        and row[column]
        and permits(server.naming.of(row[column]))
    ]


def _composed(answer: FetchedResponse, seen: Any) -> FetchedResponse:
    return answer._replace(fields=without_whole_body_fields(answer.fields), body=to_json(seen))
