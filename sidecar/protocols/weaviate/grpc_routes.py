"""Routes for Weaviate's gRPC API (`protocols/RULES.md`, Weaviate), which Weaviate 1.38.3 and later
also serves as gRPC-Web. They find the same sources as the routes for REST and GraphQL
(`routes.py`)."""

from dataclasses import replace
from typing import Any

from sidecar.protocols.protocol import ProtocolRoute, RouteClass, RoutedRequest
from sidecar.protocols.weaviate.grpc_forwarding import GrpcForwarding
from sidecar.protocols.weaviate.grpc_schema import SCHEMA

_SERVICE = "/weaviate.v1.Weaviate"
_HEALTH = "/grpc.health.v1.Health"


def _rpc(path: str, route_class: RouteClass, message: str, **members: Any) -> ProtocolRoute:
    """Return the row of a method that is called with one message."""
    return ProtocolRoute("POST", path, route_class, rpc=True, message=SCHEMA[message], **members)


def _closed(path: str, route_class: RouteClass) -> ProtocolRoute:
    return ProtocolRoute("POST", path, route_class, rpc=True)


def _search() -> ProtocolRoute:
    unfiltered = _rpc(
        f"{_SERVICE}/Search", RouteClass.RETRIEVE, "SearchRequest",
        find_sources=GrpcForwarding.of_grpc_search,
    )  # fmt: skip
    filtering = replace(
        unfiltered, plan_forward=GrpcForwarding.filter_grpc_search, filters_documents=True,
        forwards_unchanged=True,
    )  # fmt: skip

    def refine(weaviate: GrpcForwarding, request: RoutedRequest) -> ProtocolRoute:
        return filtering if weaviate.can_filter_grpc(request.body.values) else unfiltered

    return replace(filtering, refine=refine)


GRPC_ROUTES = (
    _search(),
    # Counts and values of objects that it doesn't show, so nothing can be withheld from it.
    _rpc(
        f"{_SERVICE}/Aggregate", RouteClass.RETRIEVE, "AggregateRequest",
        find_sources=GrpcForwarding.of_grpc_search,
    ),
    _rpc(
        f"{_SERVICE}/TenantsGet", RouteClass.METADATA, "TenantsGetRequest",
        find_sources=GrpcForwarding.of_grpc_tenants,
        plan_forward=GrpcForwarding.filter_grpc_tenants,
    ),
    _rpc(
        f"{_SERVICE}/BatchObjects", RouteClass.WRITE, "BatchObjectsRequest",
        find_sources=GrpcForwarding.of_grpc_objects, hint_source=GrpcForwarding.hint_of_grpc,
    ),
    _rpc(
        f"{_SERVICE}/BatchReferences", RouteClass.WRITE, "BatchReferencesRequest",
        find_sources=GrpcForwarding.of_grpc_references, hint_source=GrpcForwarding.hint_of_grpc,
    ),
    _rpc(
        f"{_SERVICE}/BatchDelete", RouteClass.WRITE, "BatchDeleteRequest",
        find_sources=GrpcForwarding.of_grpc_search, hint_source=GrpcForwarding.hint_of_grpc,
    ),
    # A stream of writes to any collections, each of which would have to be judged.
    _closed(f"{_SERVICE}/BatchStream", RouteClass.ADMIN),
    # Copies of the files of whole collections, between Weaviate's own nodes.
    *(
        _closed(f"/weaviate.v1.FileReplicationService/{method}", RouteClass.BULK)
        for method in (
            "PauseFileActivity", "ResumeFileActivity", "ListFiles", "GetFileMetadata", "GetFile",
        )
    ),
    # Clients call `Check` before anything else.
    *(_rpc(f"{_HEALTH}/{method}", RouteClass.OPEN, "HealthCheckRequest")
      for method in ("Check", "Watch")),
    # Describes the services, including those that are closed.
    *(
        _closed(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                RouteClass.ADMIN)
        for version in ("v1", "v1alpha")
    ),
)  # fmt: skip
