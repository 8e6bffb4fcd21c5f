"""Which indices a request concerns that reads, and whose answer goes on as it comes.

Each function takes the server first, as a row of the table hands it over.
"""

from policies.ground.errors import Malformed
from sidecar.protocols.messages import RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch.indices import items
from sidecar.protocols.opensearch.references import of_query, of_search
from sidecar.protocols.opensearch.server import (
    OpenSearchServer,
    any_index,
    objects,
    path_index,
    read_query,
)

Places = tuple[SourceRef, ...]


async def by_path(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of the path, of a request whose body asks for nothing further."""
    return await server.places(any_index(asked), asked, read_query(asked))


async def by_query(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of the path, and those that a body which is no search names."""
    names = [*any_index(asked), *sorted(of_query(asked.body))]
    return await server.places(names, asked, read_query(asked))


async def by_rank(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """Of a ranking evaluation: its searches, unless they are templates."""
    requests = objects(asked.body, "requests")
    asked.budget.charge_parts(len(requests))
    for each in [asked.body or {}, *requests]:
        if not {"templates", "template_id", "params"}.isdisjoint(each):
            raise Unresolved("what a search template becomes can't be told")
    for each in requests:
        search = each.get("request", {})
        if not isinstance(search, dict):
            raise Malformed("`request` is no search")
        of_search(search)
    return await by_query(server, asked)


async def by_template(_server: OpenSearchServer, _asked: RoutedRequest) -> Places:
    """A template is rendered on the server, and may become a search of anything."""
    raise Unresolved("what a search template becomes can't be told")


async def by_vectors(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """Of a document's terms: the body may name an index in the path's place."""
    body = asked.body or {}
    names = list(any_index(asked))
    if "_index" in body:
        names += items(body["_index"])
    # A document that stands in the request is no query.
    names += sorted(of_query({key: body[key] for key in body if key not in ("_index", "doc")}))
    return await server.places(names, asked, read_query(asked))


async def told(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The indices of the path, of a request for what is known of them."""
    query = parameters.known(asked.target.query, parameters.TOLD | parameters.TABLE)
    return await server.places(any_index(asked), asked, query, "all")


async def told_of_last(server: OpenSearchServer, asked: RoutedRequest) -> Places:
    """The same where the path begins with what is asked, and the index stands behind it."""
    query = parameters.known(asked.target.query, parameters.TOLD | parameters.TABLE)
    return await server.places(path_index(asked), asked, query, "all")
