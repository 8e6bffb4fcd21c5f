"""The methods of Pinecone's gRPC interface, `VectorService` (API 2025-10), each with the class and
the sources of its twin in REST (`routes.py`)."""

from dataclasses import replace

from sidecar.protocols.pinecone.forwarding import (
    FindSources,
    PineconeForwarding,
    filtering,
    judged,
    paged,
    planned,
)
from sidecar.protocols.pinecone.grpc_schema import RESPONSES, SCHEMA
from sidecar.protocols.pinecone.sources import (
    FETCH,
    FETCH_BY_METADATA,
    QUERY,
    PineconeSources,
    QueryForm,
)
from sidecar.protocols.pinecone.wires import Grpc
from sidecar.protocols.protocol import (
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceRef,
    Sources,
    Unresolved,
)

_SERVICE = "/VectorService"
_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE


def _wire(method: str) -> Grpc:
    """Return the `Wire` of a method whose response is read."""
    return Grpc(SCHEMA[f"{method}Request"], RESPONSES[f"{method}Response"])


def _call(method: str, class_: RouteClass, find: FindSources | None = None) -> ProtocolRoute:
    wire = Grpc(SCHEMA[f"{method}Request"])
    route = ProtocolRoute("POST", f"{_SERVICE}/{method}", class_, rpc=True, message=wire.request)
    if find is None:
        return route

    def found(pinecone: PineconeSources, request: RoutedRequest) -> Sources:
        return find(pinecone, request._replace(body=wire.read_request(request.body)))

    def hint(pinecone: PineconeSources, request: RoutedRequest) -> SourceRef:
        return found(pinecone, request)[0]

    if class_ is _WRITE:
        route = replace(route, hint_source=hint, hint_in_body=True)
    return judged(route, found)


def _retrieval(method: str, find: FindSources, *, pages: bool = False) -> ProtocolRoute:
    route = replace(_call(method, _RETRIEVE, find), forwards_unchanged=True)
    return paged(route, _wire(method)) if pages else route


def _stats() -> ProtocolRoute:
    wire = _wire("DescribeIndexStats")
    plan = planned(PineconeForwarding.plan_stats, wire)
    stats = replace(_call("DescribeIndexStats", _METADATA), plan_forward=plan)

    def refine(_pinecone: PineconeForwarding, request: RoutedRequest) -> ProtocolRoute:
        if wire.read_request(request.body).get("filter"):
            raise Unresolved("statistics with a `filter` concern every namespace at once")
        return stats

    return replace(stats, refine=refine)


def _namespaces() -> ProtocolRoute:
    plan = planned(PineconeForwarding.plan_namespaces, _wire("ListNamespaces"))
    return replace(_call("ListNamespaces", _METADATA), plan_forward=plan)


_SEARCHES: tuple[tuple[str, FindSources, QueryForm], ...] = (
    ("Query", PineconeSources.of_queries, QUERY),
    ("Fetch", PineconeSources.of_body, FETCH),
    ("FetchByMetadata", PineconeSources.of_body, FETCH_BY_METADATA),
)
_HEALTH = SCHEMA["HealthCheckRequest"]
_OTHERS = (
    # Not filtered: ids without metadata don't show which level their records have.
    _retrieval("List", PineconeSources.of_body, pages=True),
    _namespaces(),
    _call("DescribeNamespace", _METADATA, PineconeSources.of_body),
    _stats(),
    _call("Upsert", _WRITE, PineconeSources.of_body),
    _call("Update", _WRITE, PineconeSources.of_body),
    _call("Delete", _WRITE, PineconeSources.of_body),
    _call("CreateNamespace", _WRITE, PineconeSources.of_created),
    _call("DeleteNamespace", _WRITE, PineconeSources.of_body),
    *(
        ProtocolRoute(
            "POST", f"/grpc.health.v1.Health/{method}", RouteClass.OPEN, rpc=True, message=_HEALTH
        )
        for method in ("Check", "Watch")
    ),
    # Reflection describes all services, and has a stream of requests, which nothing reads.
    *(
        ProtocolRoute(
            "POST", f"/grpc.reflection.{version}.ServerReflection/{{method}}", RouteClass.ADMIN,
            rpc=True,
        )
        for version in ("v1", "v1alpha")
    ),
)  # fmt: skip

_UNFILTERED = [
    (_retrieval(method, find, pages=form.paged), method, form) for method, find, form in _SEARCHES
]

# A method that is not listed is denied as `unclassified_route`, so that an upgrade of Pinecone
# opens nothing by itself.
GRPC_ROUTES = (
    *(filtering(route, form, _wire(method)) for route, method, form in _UNFILTERED),
    *_OTHERS,
)
GRPC_ROUTES_WITHOUT_LEVELS = (*(route for route, _, _ in _UNFILTERED), *_OTHERS)
