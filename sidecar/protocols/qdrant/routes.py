"""Routes and error responses for Qdrant's HTTP API (`protocols/RULES.md`, Qdrant; Qdrant 1.19's
OpenAPI description and `src/actix/api`), including the routes that Qdrant serves without describing
them. Clients read the text of errors from `status.error`. A request names a collection in its path,
and may name more in its body, to look up vectors or records there (`sources.py`). The methods of
gRPC are in `grpc_routes.py`."""

from collections.abc import Callable
from dataclasses import replace

from sidecar.http.grpc.status import is_grpc
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardPlan,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteTable,
    SourceProtocol,
    Visibility,
)
from sidecar.protocols.qdrant.filter import (
    GROUPS,
    LIST,
    PAGE,
    RECORDS,
    SCROLL,
    RequestForm,
    Rest,
    filtered,
    unfiltered,
)
from sidecar.protocols.qdrant.grpc_routes import CALLS
from sidecar.protocols.qdrant.sources import (
    QdrantSources,
    UsesPoint,
    discovers_by_point,
    list_filter,
    queries_by_point,
    recommends_by_point,
)
from sidecar.protocols.shared.responses import error_response
from sidecar.protocols.strict_body import json_object, optional_json_object
from sidecar.settings.model import Source


class Qdrant(QdrantSources, SourceProtocol):
    reads_grpc = True

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self.table = _TABLE_WITHOUT_LEVELS if source.sensitivity_field is None else _TABLE

    def render_refusal(
        self, request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse | None:
        if request is not None and is_grpc(request.fields):
            # Its clients look for the reason in trailers, which the proxy writes.
            return None
        own = {"status": {"error": refusal.message}, "time": 0.0, "result": None}
        return error_response(refusal, own)

    def refine_creation(self, request: RoutedRequest) -> ProtocolRoute:
        """Return the route for the creation of a collection. One made from another collection
        (`init_from`) gets the route for copies, which is denied: the data would later be judged by
        a different name."""
        copies = request.body is not None and request.body.get("init_from") is not None
        return _COPY if copies else _CREATE


def _retrieval(
    path: str, form: RequestForm, uses_point: UsesPoint = lambda _request: False
) -> ProtocolRoute:
    return filtered(_unfiltered(path), Rest(path.endswith("/batch")), form, uses_point)


def _unfiltered(path: str) -> ProtocolRoute:
    route = ProtocolRoute("POST", path, _RETRIEVE, Qdrant.of_body, parse_body=json_object)
    return replace(route, find_sources_now=Qdrant.of_body_now)


def _list(path: str, member: str, name: str) -> ProtocolRoute:
    """Return a route for a list in `result.<member>`, whose elements are filtered by the collection
    that each of them names in its member `name`."""

    def plan(
        qdrant: Qdrant, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        read = list_filter(member, name, qdrant.source_names, visibility)
        return ForwardPlan(filter_response=read)

    return ProtocolRoute("GET", path, _METADATA, plan_forward=plan)


def _write(methods: str, path: str) -> ProtocolRoute:
    return ProtocolRoute(methods, path, _WRITE, _path, _hint)


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN, _OPEN = RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_path, _hint, _change = Qdrant.of_path, Qdrant.hint, Qdrant.forget_names

_C = "/collections/{collection}"
_P = f"{_C}/points"
_S = f"{_C}/shards/{{shard}}"

# These two rows change what a name means, so cached names are forgotten before and after: a look-up
# in between may have seen either meaning.
_DELETE = replace(_write("DELETE", _C), before_forward=_change, after_forward=_change)
_CREATE = replace(_DELETE, methods="PUT", parse_body=optional_json_object)
_COPY = ProtocolRoute("PUT", _C, _BULK)


# INVARIANT: a literal segment comes before a `{parameter}` in the same position, as in Qdrant's own
# router. A route that is not listed is denied as `unclassified_route`, so that an upgrade of
# Qdrant opens nothing by itself.
ROUTES = (
    _retrieval(f"{_P}/query", PAGE, queries_by_point),
    _retrieval(f"{_P}/query/batch", PAGE, queries_by_point),
    _retrieval(f"{_P}/query/groups", GROUPS, queries_by_point),
    # The next eight routes are older and no longer described, but Qdrant still serves them.
    _retrieval(f"{_P}/search", LIST),
    _retrieval(f"{_P}/search/batch", LIST),
    _retrieval(f"{_P}/search/groups", GROUPS),
    _retrieval(f"{_P}/recommend", LIST, recommends_by_point),
    _retrieval(f"{_P}/recommend/batch", LIST, recommends_by_point),
    _retrieval(f"{_P}/recommend/groups", GROUPS, recommends_by_point),
    _retrieval(f"{_P}/discover", LIST, discovers_by_point),
    _retrieval(f"{_P}/discover/batch", LIST, discovers_by_point),
    _retrieval(f"{_P}/scroll", SCROLL),
    _retrieval(_P, RECORDS),
    # The nodes of a cluster send these requests to each other, but agents can send them too.
    _retrieval(f"{_S}/points", RECORDS),
    _retrieval(f"{_S}/points/scroll", SCROLL),
    # Not filtered: to withhold a point, the response would have to imitate Qdrant's 404 for a point
    # that doesn't exist.
    ProtocolRoute("GET", f"{_P}/{{id}}", _RETRIEVE, _path),
    # Not filtered: numbers and ids without payload don't show which points they were made from.
    _unfiltered(f"{_P}/count"),
    _unfiltered(f"{_S}/points/count"),
    _unfiltered(f"{_P}/search/matrix/pairs"),
    _unfiltered(f"{_P}/search/matrix/offsets"),
    _unfiltered(f"{_C}/facet"),
    _list("/collections", "collections", "name"),
    # An alias is visible if its collection is.
    _list("/aliases", "aliases", "collection_name"),
    ProtocolRoute("GET", _C, _METADATA, _path),
    *(
        ProtocolRoute("GET", f"{_C}/{what}", _METADATA, _path)
        for what in ("aliases", "exists", "cluster", "optimizations", "shards")
    ),
    replace(_CREATE, refine=Qdrant.refine_creation),
    _write("PATCH", _C),
    _DELETE,
    # Writes of points change no name, so cached names stay.
    _write("PUT", _P),
    *(
        _write("POST", f"{_P}/{what}")
        for what in ("batch", "delete", "payload", "payload/clear", "payload/delete")
    ),
    _write("PUT", f"{_P}/payload"),
    _write("PUT", f"{_P}/vectors"),
    _write("POST", f"{_P}/vectors/delete"),
    _write("PUT", f"{_C}/index"),
    _write("DELETE", f"{_C}/index/{{field}}"),
    _write("PUT DELETE", f"{_C}/vectors/{{vector}}"),
    # A snapshot is a copy of everything, and `recover` takes one from a URL of the caller's choice.
    *(
        ProtocolRoute(methods, f"{start}/snapshots{rest}", _BULK)
        for start in (_C, _S)
        for methods, rest in (
            ("GET POST", ""), ("POST", "/upload"), ("PUT", "/recover"),
            ("GET DELETE", "/{snapshot}"),
        )
    ),
    ProtocolRoute("GET", f"{_S}/snapshot", _BULK),
    ProtocolRoute("GET POST", f"{_S}/snapshot/partial/{{what}}", _BULK),
    ProtocolRoute("GET POST", "/snapshots", _BULK),
    ProtocolRoute("GET DELETE", "/snapshots/{snapshot}", _BULK),
    # Points a name to another collection.
    ProtocolRoute("POST", "/collections/aliases", _ADMIN),
    ProtocolRoute("POST", f"{_C}/cluster", _ADMIN),
    ProtocolRoute("PUT", f"{_C}/shards", _ADMIN),
    ProtocolRoute("POST", f"{_C}/shards/delete", _ADMIN),
    ProtocolRoute("POST", f"{_S}/cleanup", _ADMIN),
    # These reveal something about every collection at once.
    *(
        ProtocolRoute("GET", f"/{what}", _ADMIN)
        for what in ("telemetry", "metrics", "cluster", "stacktrace", "cluster/telemetry")
    ),
    ProtocolRoute("GET POST", "/locks", _ADMIN),
    ProtocolRoute("GET POST", "/logger", _ADMIN),
    ProtocolRoute("GET DELETE", "/issues", _ADMIN),
    ProtocolRoute("GET PUT", "/quotas", _ADMIN),
    ProtocolRoute("POST", "/cluster/recover", _ADMIN),
    ProtocolRoute("DELETE", "/cluster/peer/{peer}", _ADMIN),
    # The version, and whether the server is up.
    ProtocolRoute("GET", "/", _OPEN),
    *(ProtocolRoute("GET", f"/{what}", _OPEN) for what in ("healthz", "livez", "readyz")),
)  # fmt: skip

_TABLE = RouteTable((*ROUTES, *CALLS))
# Without `sensitivity_field` nothing is filtered, and no row has anything to refine.
_TABLE_WITHOUT_LEVELS = RouteTable(map(unfiltered, _TABLE.routes))
