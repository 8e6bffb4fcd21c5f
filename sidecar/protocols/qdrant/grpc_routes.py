"""The methods of Qdrant's gRPC interface (`protocols/RULES.md`, Qdrant; the public definitions of
Qdrant 1.20). Each has the class of the route over HTTP that does the same, and is judged by the
same rules: `routes.py` has the reasons. A message names all its collections itself, so every method
that is judged has its message read (`grpc_schema.py`), a write as well."""

from dataclasses import replace

from sidecar.protocols.protocol import (
    ForwardPlan,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    SourceRef,
    Sources,
    Visibility,
)
from sidecar.protocols.qdrant.filter import RequestForm, filtered
from sidecar.protocols.qdrant.grpc_filter import (
    GROUPS,
    POINTS,
    RECORDS,
    RESPONSES,
    SCROLL,
    Grpc,
    call_list_filter,
)
from sidecar.protocols.qdrant.grpc_schema import SCHEMA
from sidecar.protocols.qdrant.grpc_sources import (
    discovers_by_point,
    names_of,
    names_of_retrieval,
    queries_by_point,
    recommends_by_point,
)
from sidecar.protocols.qdrant.sources import FindNames, QdrantSources, UsesPoint


def _call(method: str, class_: RouteClass, message: str = "") -> ProtocolRoute:
    read = SCHEMA[message] if message else None
    return ProtocolRoute("POST", f"/{method}", class_, rpc=True, message=read)


def _judged(route: ProtocolRoute, names: FindNames) -> ProtocolRoute:
    """Return `route` with its sources found by `names`."""

    async def find(qdrant: QdrantSources, request: RoutedRequest) -> Sources:
        return await qdrant.of_names(request, names)

    def find_now(qdrant: QdrantSources, request: RoutedRequest) -> Sources | None:
        return qdrant.of_names_now(request, names)

    return replace(route, find_sources=find, find_sources_now=find_now)


def _unfiltered(method: str, message: str, batch: str = "") -> ProtocolRoute:
    names = names_of_retrieval(SCHEMA[message], batch)
    return _judged(_call(f"qdrant.Points/{method}", _RETRIEVE, message), names)


def _retrieval(
    method: str,
    message: str,
    response: str,
    form: RequestForm = POINTS,
    uses_point: UsesPoint = lambda _request: False,
    batch: str = "",
) -> ProtocolRoute:
    wire = Grpc(SCHEMA[message], RESPONSES[response], batch)
    return filtered(_unfiltered(method, message, batch), wire, form, uses_point)


def _metadata(method: str) -> ProtocolRoute:
    route = _call(f"qdrant.Collections/{method}", RouteClass.METADATA, "CollectionName")
    return _judged(route, names_of(SCHEMA["CollectionName"]))


def _list(method: str, response: str, member: str, name: str) -> ProtocolRoute:
    """Return a row for a list in the field `member` of its response, whose elements are filtered by
    the collection that each of them names in its field `name`."""

    def plan(
        qdrant: QdrantSources, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        read = call_list_filter(RESPONSES[response], member, name, qdrant.source_names, visibility)
        return ForwardPlan(filter_response=read)

    route = _call(f"qdrant.Collections/{method}", RouteClass.METADATA, "Empty")
    return replace(route, plan_forward=plan)


def _hint(qdrant: QdrantSources, request: RoutedRequest) -> SourceRef | None:
    name = request.body.values.get("collection_name")
    return None if name is None else qdrant.hint_of_name(request, name)


def _write(method: str, message: str) -> ProtocolRoute:
    route = _judged(_call(f"qdrant.{method}", RouteClass.WRITE, message), names_of(SCHEMA[message]))
    return replace(route, hint_source=_hint, hint_in_body=True)


def _name_change(method: str, message: str) -> ProtocolRoute:
    forget = QdrantSources.forget_names
    return replace(_write(method, message), before_forward=forget, after_forward=forget)


_RETRIEVE, _BULK, _ADMIN = RouteClass.RETRIEVE, RouteClass.BULK, RouteClass.ADMIN

# A method that is not listed is denied as `unclassified_route`, so that an upgrade of Qdrant opens
# nothing by itself.
CALLS = (
    _retrieval("Query", "QueryPoints", "Points", POINTS, queries_by_point),
    _retrieval("QueryBatch", "QueryBatchPoints", "Batch", POINTS, queries_by_point, "query_points"),
    _retrieval("QueryGroups", "QueryPointGroups", "Groups", GROUPS, queries_by_point),
    _retrieval("Search", "SearchPoints", "Points"),
    _retrieval("SearchBatch", "SearchBatchPoints", "Batch", batch="search_points"),
    _retrieval("SearchGroups", "SearchPointGroups", "Groups", GROUPS),
    _retrieval("Recommend", "RecommendPoints", "Points", POINTS, recommends_by_point),
    _retrieval(
        "RecommendBatch", "RecommendBatchPoints", "Batch", POINTS, recommends_by_point,
        "recommend_points",
    ),
    _retrieval("RecommendGroups", "RecommendPointGroups", "Groups", GROUPS, recommends_by_point),
    _retrieval("Discover", "DiscoverPoints", "Points", POINTS, discovers_by_point),
    _retrieval(
        "DiscoverBatch", "DiscoverBatchPoints", "Batch", POINTS, discovers_by_point,
        "discover_points",
    ),
    _retrieval("Scroll", "ScrollPoints", "Page", SCROLL),
    _retrieval("Get", "GetPoints", "Records", RECORDS),
    _unfiltered("Count", "CountPoints"),
    _unfiltered("Facet", "FacetCounts"),
    _unfiltered("SearchMatrixPairs", "SearchMatrixPoints"),
    _unfiltered("SearchMatrixOffsets", "SearchMatrixPoints"),
    _list("List", "Collections", "collections", "name"),
    _list("ListAliases", "Aliases", "aliases", "collection_name"),
    *(
        _metadata(method)
        for method in (
            "Get", "ListCollectionAliases", "CollectionExists", "CollectionClusterInfo",
            "ListShardKeys",
        )
    ),
    _name_change("Collections/Create", "CreateCollection"),
    _write("Collections/Update", "UpdateCollection"),
    _name_change("Collections/Delete", "DeleteCollection"),
    _write("Points/Upsert", "UpsertPoints"),
    _write("Points/Delete", "DeletePoints"),
    _write("Points/UpdateVectors", "UpdatePointVectors"),
    _write("Points/DeleteVectors", "DeletePointVectors"),
    _write("Points/SetPayload", "SetPayloadPoints"),
    _write("Points/OverwritePayload", "SetPayloadPoints"),
    _write("Points/DeletePayload", "DeletePayloadPoints"),
    _write("Points/ClearPayload", "ClearPayloadPoints"),
    # Its operations name no collection of their own.
    _write("Points/UpdateBatch", "UpdateBatchPoints"),
    _write("Points/CreateFieldIndex", "CreateFieldIndexCollection"),
    _write("Points/DeleteFieldIndex", "DeleteFieldIndexCollection"),
    _write("Points/CreateVectorName", "CreateVectorNameRequest"),
    _write("Points/DeleteVectorName", "DeleteVectorNameRequest"),
    _call("qdrant.Collections/UpdateAliases", _ADMIN),
    _call("qdrant.Collections/UpdateCollectionClusterSetup", _ADMIN),
    _call("qdrant.Collections/CreateShardKey", _ADMIN),
    _call("qdrant.Collections/DeleteShardKey", _ADMIN),
    # Copies of everything, and files as they are on disk.
    *(
        _call(f"qdrant.{service}/{{method}}", _BULK)
        for service in ("Snapshots", "ShardSnapshots", "StorageRead")
    ),
    # What the nodes of a cluster send each other, on a port of its own.
    *(
        _call(f"qdrant.{service}/{{method}}", _ADMIN)
        for service in ("PointsInternal", "CollectionsInternal", "QdrantInternal", "Raft")
    ),
    # Reflection describes all services, and has a stream of requests, which nothing reads.
    *(
        _call(f"grpc.reflection.{version}.ServerReflection/{{method}}", _ADMIN)
        for version in ("v1", "v1alpha")
    ),
    # The version, and whether the server is up.
    _call("qdrant.Qdrant/HealthCheck", RouteClass.OPEN, "Empty"),
    _call("grpc.health.v1.Health/Check", RouteClass.OPEN, "Health"),
    _call("grpc.health.v1.Health/Watch", RouteClass.OPEN, "Health"),
)  # fmt: skip
