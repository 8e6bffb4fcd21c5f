"""Chroma's creation of a collection, and its get-or-create.

LangChain's `Chroma(client=…, collection_name=…)` opens every collection by get-or-create. Where
writes are denied, that is a look-up by name of a collection that is there: a GET is forwarded in
its place, so that nothing is created, and no metadata of the request are taken over (some versions
of Chroma would). Each function takes the server first, as a row of the table hands it over.
"""

from typing import Protocol

from policies.ground.errors import UpstreamFailed
from sidecar.http.request_target import canonical, encode_segment
from sidecar.protocols.chroma.names import collections_path, name_of
from sidecar.protocols.messages import MissingSource, Permits, RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.shared.source_names import SourceNames

_MISSING = (
    "collection `{}` does not exist, and `writes` is `deny` for this source: create it beforehand, "
    "open it without creating it (LangChain: `create_collection_if_not_exists=False`), or set "
    "`writes: allow`"
)


class _ChromaServer(Protocol):
    naming: SourceNames


async def created(server: _ChromaServer, asked: RoutedRequest) -> tuple[SourceRef, ...]:
    """The collection that is created, or taken if it is there (`get_or_create`)."""
    return (server.naming.of(*asked.path_params, _name(asked)),)


async def opened(
    server: _ChromaServer, asked: RoutedRequest, permits: Permits
) -> tuple[SourceRef, ...]:
    """The collection that is to be opened or created, if it is there."""
    [place] = await created(server, asked)
    # The name goes into a path, so it must be one that would be read there.
    canonical(lookup_target(server, asked))
    if not permits(place):
        # Denied as that, whether it is there or not.
        return (place,)
    try:
        answer = await asked.fetch(lookup_target(server, asked))
    except UpstreamFailed as error:
        raise Unresolved(f"the collection can't be looked up: {error}") from error
    if answer.status == 404:
        raise MissingSource(place, _MISSING.format(_name(asked)[:128]))
    if answer.status != 200:
        raise Unresolved(f"the collection can't be looked up: status {answer.status}")
    return (place,)


def lookup_target(_server: _ChromaServer, asked: RoutedRequest) -> str:
    """The target of a look-up of the collection that the body names."""
    return f"{collections_path(*asked.path_params)}/{encode_segment(_name(asked))}"


def hint(server: _ChromaServer, asked: RoutedRequest) -> SourceRef | None:
    """The collection, for the record of a creation that is denied."""
    name = asked.body.get("name")
    return server.naming.of(*asked.path_params, name) if isinstance(name, str) and name else None


def _name(asked: RoutedRequest) -> str:
    return name_of(asked.body.get("name"), "name")
