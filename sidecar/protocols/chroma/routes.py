"""Routes and error responses for Chroma's HTTP API, version 2 (`protocols/RULES.md`, Chroma;
chromadb 1.5.9).

`collections/{name}` takes a name where its sibling routes take an id. LangChain's `Chroma(client=…,
collection_name=…)` opens every collection with get-or-create: if writes are denied, that becomes a
look-up of an existing collection.
"""

from collections.abc import Callable

from policies.ground.errors import UpstreamFailed
from sidecar.http.request_target import canonical, encode_segment
from sidecar.protocols.chroma.filter import plan_get, plan_query
from sidecar.protocols.chroma.sources import ChromaSources, collections_path, expect_name
from sidecar.protocols.protocol import (
    FetchedResponse,
    MissingSource,
    Permits,
    PlanForward,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteTable,
    SourceProtocol,
    SourceRef,
    Sources,
    Unresolved,
)
from sidecar.protocols.shared.responses import error_response
from sidecar.protocols.strict_body import json_object
from sidecar.settings.model import Source

_ERROR_NAMES = {
    400: "InvalidArgumentError", 403: "AuthorizationError", 404: "NotFoundError",
    413: "BatchSizeExceededError",
}  # fmt: skip
_NOT_THERE_YET = (
    "collection `{}` does not exist, and `writes` is `deny` for this source: create it beforehand, "
    "open it without creating it (LangChain: `create_collection_if_not_exists=False`), or set "
    "`writes: allow`"
)


async def created_source(chroma: ChromaSources, request: RoutedRequest) -> Sources:
    """Return the collection that the request creates, or opens if it exists (`get_or_create`)."""
    return (chroma.naming.of(*request.path_params, _created_name(request)),)


async def existing_source(
    chroma: ChromaSources, request: RoutedRequest, permits: Permits
) -> Sources:
    """Return the collection that a get-or-create request names, if it exists. Raises
    `MissingSource` if it doesn't."""
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
        raise MissingSource(source, _NOT_THERE_YET.format(_created_name(request)[:128]))
    if response.status != 200:
        raise Unresolved(f"the collection can't be looked up: status {response.status}")
    return (source,)


def lookup_target(_chroma: ChromaSources, request: RoutedRequest) -> str:
    # A GET creates nothing. Nor can the request's metadata replace the collection's, as they would
    # with get-or-create in some versions of Chroma.
    return f"{collections_path(*request.path_params)}/{encode_segment(_created_name(request))}"


def hint_created(chroma: ChromaSources, request: RoutedRequest) -> SourceRef | None:
    name = request.body.get("name")
    return chroma.naming.of(*request.path_params, name) if isinstance(name, str) and name else None


def _created_name(request: RoutedRequest) -> str:
    return expect_name(request.body.get("name"), "name")


class Chroma(ChromaSources, SourceProtocol):
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._writes = source.writes == "allow"

    def render_refusal(
        self, _request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse:
        # Any other error is the sidecar's or the data source's, and no fault of the request.
        error = _ERROR_NAMES.get(refusal.status, "InternalError")
        return error_response(refusal, {"error": error})

    def refine_creation(self, request: RoutedRequest) -> ProtocolRoute:
        """Return the route for a creation. If writes are denied, get-or-create (which LangChain
        sends for every collection that it opens) gets the route that looks up an existing
        collection."""
        # Where writes are allowed, get-or-create may create the collection, so it is judged as a
        # write.
        lookup = not self._writes and request.body.get("get_or_create") is True
        return _GET_OR_CREATE if lookup else _CREATE


_API = "/api/v2"
_DB = f"{_API}/tenants/{{tenant}}/databases/{{database}}"
_NAMES = f"{_DB}/collections"
_ONE = f"{_NAMES}/{{id}}"

_RETRIEVE, _RESOLVE, _METADATA = RouteClass.RETRIEVE, RouteClass.RESOLVE, RouteClass.METADATA
_WRITE, _BULK, _ADMIN, _OPEN = RouteClass.WRITE, RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_READ = "GET HEAD"
_by_id, _by_name, _hint = Chroma.by_id, Chroma.by_name, Chroma.hint_by_id
_cached = Chroma.cached_by_id
_shown, _change = Chroma.response_source, Chroma.forget_names


def _retrieval(verb: str, plan: PlanForward | None = None) -> ProtocolRoute:
    return ProtocolRoute(
        "POST", f"{_ONE}/{verb}", _RETRIEVE, _by_id, find_sources_now=_cached,
        parse_body=json_object, plan_forward=plan, filters_documents=plan is not None,
        forwards_unchanged=True,
    )  # fmt: skip


# INVARIANT: a literal segment comes before a `{parameter}` in the same position, as in Chroma's own
# router. A route that is not listed is denied as `unclassified_route`, so that an upgrade of Chroma
# opens nothing by itself.
ROUTES = (
    _retrieval("query", plan_query),
    _retrieval("get", plan_get),
    # Not filtered: a local Chroma answers 501, so the form of its responses is not known here.
    _retrieval("search"),
    ProtocolRoute(_READ, f"{_NAMES}/by-id/{{id}}", _RESOLVE, _by_id, response_source=_shown),
    # Chroma's OpenAPI description calls this segment `collection_id`, but the server reads a name.
    ProtocolRoute(_READ, f"{_NAMES}/{{name}}", _RESOLVE, _by_name, response_source=_shown),
    ProtocolRoute(
        _READ, f"{_API}/collections/{{crn}}", _RESOLVE, Chroma.by_crn, response_source=_shown
    ),
    # Composed instead of forwarded: neither the list nor its length may show what is hidden.
    ProtocolRoute(_READ, _NAMES, _METADATA, compose_response=Chroma.list_collections),
    ProtocolRoute(_READ, f"{_NAMES}_count", _METADATA, compose_response=Chroma.count_collections),
    # Counts all records, including those that the agent may not see.
    ProtocolRoute(_READ, f"{_ONE}/count", _METADATA, _by_id, find_sources_now=_cached),
    ProtocolRoute(_READ, f"{_ONE}/indexing_status", _METADATA, _by_id),
    ProtocolRoute(_READ, f"{_ONE}/fork_count", _METADATA, _by_id),
    *(
        ProtocolRoute("POST", f"{_ONE}/{verb}", _WRITE, _by_id, _hint)
        for verb in ("add", "update", "upsert", "delete")
    ),
    # The body decides whether this is a write or the look-up of an existing collection.
    ProtocolRoute("POST", _NAMES, _RESOLVE, parse_body=json_object, refine=Chroma.refine_creation),
    # Names are forgotten before the request, so that no earlier look-up is cached, and after it,
    # since a look-up that began in between may have seen the old name.
    ProtocolRoute(
        "PUT", _ONE, _WRITE, Chroma.by_rename, _hint, json_object, before_forward=_change,
        after_forward=_change,
    ),
    # This segment, too, is a name and not an id.
    ProtocolRoute(
        "DELETE", f"{_NAMES}/{{name}}", _WRITE, _by_name, Chroma.hint_by_name,
        before_forward=_change, after_forward=_change,
    ),
    # A fork is a new collection, and a function writes into another one. Reads of these would be
    # judged by the names of the copies.
    ProtocolRoute("POST", f"{_ONE}/fork", _BULK),
    ProtocolRoute("POST", f"{_ONE}/functions/attach", _BULK),
    ProtocolRoute(_READ, f"{_ONE}/functions/{{function}}", _BULK),
    ProtocolRoute("POST", f"{_ONE}/attached_functions/{{function}}/detach", _BULK),
    ProtocolRoute("POST", f"{_API}/reset", _ADMIN),
    ProtocolRoute("POST", f"{_API}/tenants", _ADMIN),
    # Sets the tenant's part of a resource name, so it could change what such names mean.
    ProtocolRoute("PATCH", f"{_API}/tenants/{{tenant}}", _ADMIN),
    ProtocolRoute(f"{_READ} POST", f"{_API}/tenants/{{tenant}}/databases", _ADMIN),
    ProtocolRoute("DELETE", _DB, _ADMIN),
    ProtocolRoute(_READ, _API, _OPEN),
    ProtocolRoute(_READ, f"{_API}/heartbeat", _OPEN),
    ProtocolRoute(_READ, f"{_API}/healthcheck", _OPEN),
    ProtocolRoute(_READ, f"{_API}/version", _OPEN),
    ProtocolRoute(_READ, f"{_API}/pre-flight-checks", _OPEN),
    ProtocolRoute(_READ, f"{_API}/auth/identity", _OPEN),
    ProtocolRoute(_READ, f"{_API}/tenants/{{tenant}}", _OPEN),
    ProtocolRoute(_READ, _DB, _OPEN),
)  # fmt: skip

_CREATE = ProtocolRoute(
    "POST", _NAMES, _WRITE, created_source, hint_created, json_object, response_source=_shown,
    before_forward=_change,
)  # fmt: skip
# Forwarded as a GET: it changes no name, so nothing is forgotten.
_GET_OR_CREATE = ProtocolRoute(
    "POST", _NAMES, _RESOLVE, hint_source=hint_created, parse_body=json_object,
    find_visible_sources=existing_source, replacement_target=lookup_target, response_source=_shown,
)  # fmt: skip

Chroma.table = RouteTable(ROUTES)
