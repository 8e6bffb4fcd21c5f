"""Routes for Weaviate's gRPC API (`protocols/RULES.md`, Weaviate), which Weaviate 1.38.3 and later
also serves as gRPC-Web, on the port of REST. They find the same sources as the routes for REST and
GraphQL (`routes.py`)."""

from dataclasses import replace
from typing import Any

from sidecar.http.grpc.status import INTERNAL, Failure, trailers
from sidecar.http.grpc.web import encode_body, trailers_frame, web_form
from sidecar.protocols.protocol import (
    FetchedResponse,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
)
from sidecar.protocols.weaviate.grpc_forwarding import GrpcForwarding
from sidecar.protocols.weaviate.grpc_schema import SCHEMA

_SERVICE = "/weaviate.v1.Weaviate"
_HEALTH = "/grpc.health.v1.Health"
_WEB = "/v1/grpc-web"


def _rpc(path: str, route_class: RouteClass, message: str, **members: Any) -> ProtocolRoute:
    """Return the row of a method that is called with one message or, with `stream`, with any number
    of them."""
    return ProtocolRoute("POST", path, route_class, rpc=True, message=SCHEMA[message], **members)


def _closed(path: str, route_class: RouteClass) -> ProtocolRoute:
    return ProtocolRoute("POST", path, route_class, rpc=True)


def _web(row: ProtocolRoute) -> ProtocolRoute:
    """Return the row of the same method on the port of REST, by gRPC-Web."""
    return replace(row, pattern=f"{_WEB}{row.pattern}", rpc=False, web=True)


def _filtering(search: ProtocolRoute) -> ProtocolRoute:
    filtering = replace(
        search, plan_forward=GrpcForwarding.filter_grpc_search, filters_documents=True,
        forwards_unchanged=True,
    )  # fmt: skip

    def refine(weaviate: GrpcForwarding, request: RoutedRequest) -> ProtocolRoute:
        return filtering if weaviate.can_filter_grpc(request.body.values) else search

    return replace(filtering, refine=refine)


_SEARCH = _rpc(
    f"{_SERVICE}/Search", RouteClass.RETRIEVE, "SearchRequest",
    find_sources=GrpcForwarding.of_grpc_search,
)  # fmt: skip
_OTHERS = (
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
        hint_in_body=True,
    ),
    _rpc(
        f"{_SERVICE}/BatchReferences", RouteClass.WRITE, "BatchReferencesRequest",
        find_sources=GrpcForwarding.of_grpc_references, hint_source=GrpcForwarding.hint_of_grpc,
        hint_in_body=True,
    ),
    _rpc(
        f"{_SERVICE}/BatchDelete", RouteClass.WRITE, "BatchDeleteRequest",
        find_sources=GrpcForwarding.of_grpc_search, hint_source=GrpcForwarding.hint_of_grpc,
        hint_in_body=True,
    ),
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

_STREAM = f"{_SERVICE}/BatchStream"

GRPC_ROUTES = (
    _filtering(_SEARCH),
    *_OTHERS,
    _rpc(
        _STREAM, RouteClass.WRITE, "BatchStreamRequest", stream=True,
        find_sources=GrpcForwarding.of_grpc_stream,
    ),
)  # fmt: skip
# gRPC-Web has no streams from the client.
WEB_ROUTES = (
    _filtering(_web(_SEARCH)), *map(_web, _OTHERS), _web(_closed(_STREAM, RouteClass.ADMIN)),
)  # fmt: skip


def render_web_refusal(request: RoutedRequest, refusal: RefusalResponse) -> FetchedResponse:
    """Return a refusal in gRPC-Web's form: a success of HTTP whose body is the trailers that tell
    the failure."""
    types = [value for name, value in request.fields if name.lower() == b"content-type"]
    content_type = types[0] if types and web_form(types[0]) else b"application/grpc-web+proto"
    decision = refusal.decision
    names = ("decision", "event_id")
    told: dict[str, str] = {name: value for name, value in decision.items() if name in names}
    code = INTERNAL if refusal.withheld else None
    failure = Failure(
        refusal.status, refusal.message, decision.get("policy_name", ""), told, code=code
    )
    lines = b"".join(b"%b: %b\r\n" % field for field in trailers(failure))
    body = encode_body(trailers_frame(lines), web_form(content_type) or b"")
    return FetchedResponse(200, "", [(b"Content-Type", content_type)], body)
