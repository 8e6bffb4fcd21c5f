"""Chroma's creation of a collection, and its get-or-create.

LangChain's `Chroma(client=…, collection_name=…)` opens every collection with get-or-create. If
writes are denied, that becomes a look-up of an existing collection. Routes call each function with
the protocol as its first argument.
"""

from policies.ground.errors import UpstreamFailed
from sidecar.http.request_target import canonical, encode_segment
from sidecar.protocols.chroma.sources import ChromaSources, collections_path, expect_name
from sidecar.protocols.messages import MissingSource, Permits, RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.route_table import Sources

_MISSING = (
    "collection `{}` does not exist, and `writes` is `deny` for this source: create it beforehand, "
    "open it without creating it (LangChain: `create_collection_if_not_exists=False`), or set "
    "`writes: allow`"
)


async def created_source(chroma: ChromaSources, request: RoutedRequest) -> Sources:
    """The collection that the request creates, or opens if it exists (`get_or_create`)."""
    return (chroma.naming.of(*request.path_params, _name(request)),)


async def existing_source(
    chroma: ChromaSources, request: RoutedRequest, permits: Permits
) -> Sources:
    """The collection that get-or-create names, if it exists. Raises `MissingSource`."""
    [source] = await created_source(chroma, request)
    target = lookup_target(chroma, request)
    # The body's name becomes part of a path, so it must be valid there: `..` would lead elsewhere.
    canonical(target)
    if not permits(source):
        # Return before the look-up: the denial must not depend on whether the collection exists.
        return (source,)
    try:
        response = await request.fetch(target)
    except UpstreamFailed as error:
        raise Unresolved(f"the collection can't be looked up: {error}") from error
    if response.status == 404:
        raise MissingSource(source, _MISSING.format(_name(request)[:128]))
    if response.status != 200:
        raise Unresolved(f"the collection can't be looked up: status {response.status}")
    return (source,)


def lookup_target(_chroma: ChromaSources, request: RoutedRequest) -> str:
    """The target of a look-up of the collection that the body names."""
    # A GET creates nothing. Nor can the request's metadata replace the collection's, as they would
    # with get-or-create in some versions of Chroma.
    return f"{collections_path(*request.path_params)}/{encode_segment(_name(request))}"


def hint_created(chroma: ChromaSources, request: RoutedRequest) -> SourceRef | None:
    """The collection, for the record of a denied creation."""
    name = request.body.get("name")
    return chroma.naming.of(*request.path_params, name) if isinstance(name, str) and name else None


def _name(request: RoutedRequest) -> str:
    return expect_name(request.body.get("name"), "name")
