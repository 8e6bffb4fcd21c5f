"""Routes and error responses for Pinecone's data plane (`protocols/RULES.md`, Pinecone; API 2026-07
and its client 10.2). The errors have gRPC's codes, as Pinecone's do.

An index has its own host, so the configured alias stands for the index. A request reads one of its
namespaces, named in the path, the query or the body.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sidecar.http.grpc.status import is_grpc
from sidecar.protocols.pinecone.forwarding import (
    FindSources,
    PineconeForwarding,
    filtering,
    judged,
    paged,
    planned,
)
from sidecar.protocols.pinecone.grpc_routes import GRPC_ROUTES, GRPC_ROUTES_WITHOUT_LEVELS
from sidecar.protocols.pinecone.sources import (
    FETCH,
    FETCH_BY_METADATA,
    FETCH_DOCUMENTS,
    QUERY,
    SEARCH,
    SEARCH_DOCUMENTS,
    PineconeSources,
    QueryForm,
)
from sidecar.protocols.pinecone.wires import REST
from sidecar.protocols.protocol import (
    FetchedResponse,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteTable,
    SourceProtocol,
    SourceRef,
    Unresolved,
)
from sidecar.protocols.shared.responses import error_response
from sidecar.protocols.shared.strict_queries import read_members, read_parameters
from sidecar.protocols.strict_body import json_object, optional_json_object
from sidecar.settings.model import Source

_CODES = {
    400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT", 502: "UNAVAILABLE", 503: "UNAVAILABLE",
}  # fmt: skip


class Pinecone(PineconeForwarding, SourceProtocol):
    reads_grpc = True

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self.table = _TABLE_WITHOUT_LEVELS if source.sensitivity_field is None else _TABLE

    def render_refusal(
        self, request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse | None:
        if request is not None and is_grpc(request.fields):
            return None  # told by a status, as all clients of gRPC read it
        error = {"code": _CODES.get(refusal.status, "INTERNAL"), "message": refusal.message}
        return error_response(refusal, {"error": error, "status": refusal.status})

    def refine_stats(self, request: RoutedRequest) -> ProtocolRoute:
        """Return the route for index statistics. Raises `Unresolved` if the request has a filter:
        the statistics would then reveal what is in every namespace."""
        [given] = read_members(request.body or {}, "filter")
        [stated] = read_parameters(request.target.query, "filter")
        if given or stated:
            raise Unresolved("statistics with a `filter` concern every namespace at once")
        return _STATS


_RETRIEVE, _METADATA = RouteClass.RETRIEVE, RouteClass.METADATA
_WRITE, _BULK = RouteClass.WRITE, RouteClass.BULK
_path, _body, _hint = PineconeSources.of_path, PineconeSources.of_body, PineconeSources.hint
_assistant, _hint_assistant = PineconeSources.of_assistant, PineconeSources.hint_of_assistant

_R, _D = "/records/namespaces/{namespace}", "/namespaces/{namespace}/documents"
_CHAT, _FILES = "/assistant/chat/{assistant}", "/assistant/files/{assistant}"


def _route(
    methods: str, path: str, class_: RouteClass, find: FindSources, hint: Any = None, **more: Any
) -> ProtocolRoute:
    return judged(ProtocolRoute(methods, path, class_, hint_source=hint, **more), find)


def _write_by_body(path: str, find: FindSources) -> ProtocolRoute:
    """Return the row of a write that names its namespace in the body alone."""

    def hint(pinecone: PineconeSources, request: RoutedRequest) -> SourceRef:
        return find(pinecone, request)[0]

    return _route("POST", path, _WRITE, find, hint, parse_body=json_object, hint_in_body=True)


def _unfiltered_route(
    methods: str, path: str, find: FindSources, *, pages: bool = False
) -> ProtocolRoute:
    parse_body = None if methods == "GET" else json_object
    route = _route(methods, path, _RETRIEVE, find, parse_body=parse_body, forwards_unchanged=True)
    return paged(route, REST) if pages else route


# Statistics of the whole index. The filter of the response decides which namespaces they show.
_plan = planned(PineconeForwarding.plan_stats, REST)
_STATS = ProtocolRoute("GET POST", "/describe_index_stats", _METADATA, plan_forward=_plan)
_plan_list = planned(PineconeForwarding.plan_namespaces, REST)

_SEARCHES: tuple[tuple[str, str, FindSources, QueryForm], ...] = (
    ("POST", "/query", PineconeSources.of_queries, QUERY),
    ("GET", "/vectors/fetch", PineconeSources.of_query, FETCH),
    ("POST", "/vectors/fetch_by_metadata", _body, FETCH_BY_METADATA),
    ("POST", f"{_R}/search", PineconeSources.of_records, SEARCH),
    ("POST", f"{_D}/search", PineconeSources.of_documents, SEARCH_DOCUMENTS),
    ("POST", f"{_D}/fetch", PineconeSources.of_documents, FETCH_DOCUMENTS),
)
_OTHERS = (
    # Not filtered: ids without metadata don't show which level their records have.
    _unfiltered_route("GET", "/vectors/list", PineconeSources.of_query, pages=True),
    _unfiltered_route("POST", f"{_D}/list", PineconeSources.of_documents, pages=True),
    # An assistant answers from any of its files, so no condition on the level can be added.
    _route("POST", _CHAT, _RETRIEVE, _assistant),
    _route("POST", f"{_CHAT}/context", _RETRIEVE, _assistant),
    _route("POST", f"{_CHAT}/chat/completions", _RETRIEVE, _assistant),
    _route("GET", _FILES, _RETRIEVE, _assistant),
    _route("GET", f"{_FILES}/{{file}}", _RETRIEVE, _assistant),
    ProtocolRoute("GET", "/namespaces", _METADATA, plan_forward=_plan_list),
    _route("GET", "/namespaces/{namespace}", _METADATA, _path),
    replace(_STATS, parse_body=optional_json_object, refine=Pinecone.refine_stats),
    _write_by_body("/vectors/upsert", _body),
    _write_by_body("/vectors/update", _body),
    _write_by_body("/vectors/delete", _body),
    _write_by_body("/namespaces", PineconeSources.of_created),
    _route("DELETE", "/namespaces/{namespace}", _WRITE, _path, _hint),
    _route("POST", f"{_R}/upsert", _WRITE, _path, _hint),
    _route("POST", f"{_D}/upsert", _WRITE, _path, _hint),
    _route("POST", f"{_D}/update", _WRITE, _path, _hint),
    _route("POST", f"{_D}/delete", _WRITE, _path, _hint),
    _route("POST", _FILES, _WRITE, _assistant, _hint_assistant),
    _route("DELETE", f"{_FILES}/{{file}}", _WRITE, _assistant, _hint_assistant),
    # Imports copy from external storage, into any namespace.
    ProtocolRoute("GET POST", "/bulk/imports", _BULK),
    ProtocolRoute("GET DELETE", "/bulk/imports/{import}", _BULK),
    # These change assistants and their instructions.
    ProtocolRoute("GET POST", "/assistant/assistants", RouteClass.ADMIN),
    ProtocolRoute("GET PATCH DELETE", "/assistant/assistants/{assistant}", RouteClass.ADMIN),
)

_UNFILTERED = [
    (_unfiltered_route(methods, path, find, pages=form.paged), form)
    for methods, path, find, form in _SEARCHES
]

# INVARIANT: a literal segment comes before a `{parameter}` in the same position. A route that is
# not listed is denied as `unclassified_route`, so that an upgrade of Pinecone opens nothing by
# itself.
ROUTES = (*(filtering(route, form, REST) for route, form in _UNFILTERED), *_OTHERS)

_TABLE = RouteTable((*ROUTES, *GRPC_ROUTES))
# Without `sensitivity_field` nothing is filtered, so all requests of a route share one row, which
# has nothing to refine.
_TABLE_WITHOUT_LEVELS = RouteTable(
    (*(route for route, _ in _UNFILTERED), *_OTHERS, *GRPC_ROUTES_WITHOUT_LEVELS)
)
