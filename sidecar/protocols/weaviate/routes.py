"""Routes and error responses for Weaviate's HTTP API (`protocols/RULES.md`, Weaviate; the
description and handlers of Weaviate 1.40): the routes that agents use, and those that are denied
with a reason. Errors are a list of messages, under the names that REST and GraphQL clients read.
Those for gRPC are in `grpc_routes.py`."""

from dataclasses import replace

from sidecar.http.grpc.status import is_grpc
from sidecar.protocols.protocol import (
    FetchedResponse,
    FindSources,
    ForwardPlan,
    HintSource,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteTable,
    SourceProtocol,
    Visibility,
)
from sidecar.protocols.shared.responses import error_response
from sidecar.protocols.strict_body import BodyParser, json_object
from sidecar.protocols.weaviate import sources
from sidecar.protocols.weaviate.forwarding import parse_graphql, parse_graphql_batch
from sidecar.protocols.weaviate.grpc_forwarding import GrpcForwarding
from sidecar.protocols.weaviate.grpc_routes import GRPC_ROUTES, WEB_ROUTES, render_web_refusal
from sidecar.protocols.weaviate.names import collection_filter, json_array


class Weaviate(GrpcForwarding, SourceProtocol):
    reads_grpc = True

    def render_refusal(
        self, request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse | None:
        if request is not None and is_grpc(request.fields):
            return None  # told by a status, in the one form that all clients of gRPC read
        segments = () if request is None else request.target.segments
        if request is not None and segments[:2] == ("v1", "grpc-web"):
            return render_web_refusal(request, refusal)
        if request is not None and segments == ("v1", "mcp"):
            rendered = sources.render_tool_refusal(request.body, refusal)
            if rendered is not None:
                return rendered
        messages = [{"message": refusal.message}]
        # Weaviate itself answers a batch that it refuses as a whole with the REST form alone.
        of_query = {"data": None, "errors": messages} if segments == ("v1", "graphql") else {}
        return error_response(refusal, {**of_query, "error": messages})


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN, _OPEN = RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_path, _name = Weaviate.of_path, Weaviate.of_name
_hint, _change = Weaviate.hint_source, Weaviate.forget_names

_V1 = "/v1"
_O, _ONE = f"{_V1}/objects", f"{_V1}/objects/{{class}}/{{id}}"
_S, _C = f"{_V1}/schema", f"{_V1}/schema/{{class}}"
_REFERENCES = f"{_ONE}/references/{{property}}"
_TENANTS = f"{_C}/tenants"


def _graphql(path: str, parse_body: BodyParser) -> ProtocolRoute:
    route = ProtocolRoute("POST", path, _RETRIEVE, Weaviate.of_queries, parse_body=parse_body)
    unfiltered = replace(route, plan_forward=Weaviate.forward_queries)
    filtering = replace(unfiltered, plan_forward=Weaviate.filter_queries, filters_documents=True)

    def refine(weaviate: Weaviate, request: RoutedRequest) -> ProtocolRoute:
        return filtering if weaviate.can_filter(request.body) else unfiltered

    return replace(filtering, refine=refine)


# MCP has one path for everything, so the row depends on the tool that is called.
def _refine_mcp(_weaviate: Weaviate, request: RoutedRequest) -> ProtocolRoute | None:
    route_class = sources.class_of_tool_call(request.body)
    return None if route_class is None else _MCP[route_class]


_MCP_ROW = ProtocolRoute("POST", f"{_V1}/mcp", _RETRIEVE, parse_body=json_object)
_MCP = {
    of: replace(
        _MCP_ROW, route_class=of, find_sources=None if of is _OPEN else Weaviate.of_tool,
        hint_source=Weaviate.hint_of_tool if of is _WRITE else None,
    )
    for of in (_RETRIEVE, _METADATA, _WRITE, _OPEN)
}  # fmt: skip


def _list(path: str, member: str) -> ProtocolRoute:
    def plan(
        weaviate: Weaviate, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        read = collection_filter(member, weaviate.source_names, visibility)
        return ForwardPlan(filter_response=read)

    return ProtocolRoute("GET", path, _METADATA, plan_forward=plan)


def _write(
    methods: str, path: str, find_sources: FindSources = _path, parse_body: BodyParser | None = None
) -> ProtocolRoute:
    return ProtocolRoute(methods, path, _WRITE, find_sources, _hint, parse_body=parse_body)


def _write_by_body(
    methods: str, path: str, find_sources: FindSources, hint: HintSource, parse_body: BodyParser
) -> ProtocolRoute:
    """Return the row of a write that names its collection in the body alone."""
    return replace(
        _write(methods, path, find_sources, parse_body), hint_source=hint, hint_in_body=True
    )


def _renaming(write: ProtocolRoute) -> ProtocolRoute:
    # Names are forgotten before and after: a look-up in between could have cached either meaning.
    return replace(write, before_forward=_change, after_forward=_change)


# INVARIANT: a literal segment comes before a `{parameter}` in the same position, as in Weaviate's
# own table. A request that no row covers is denied as `unclassified_route`, so that an upgrade of
# Weaviate opens nothing.
ROUTES = (
    _graphql(f"{_V1}/graphql", parse_graphql),
    _graphql(f"{_V1}/graphql/batch", parse_graphql_batch),
    ProtocolRoute(
        "POST", f"{_V1}/search/{{class}}/{{how}}", _RETRIEVE, Weaviate.of_search,
        parse_body=json_object,
    ),
    ProtocolRoute(
        "GET", _O, _RETRIEVE, Weaviate.of_listing, plan_forward=Weaviate.filter_objects,
        forwards_unchanged=True, filters_documents=True,
    ),
    # Checks an object against its collection's definition, and stores nothing.
    ProtocolRoute("POST", f"{_O}/validate", _METADATA, Weaviate.of_object, parse_body=json_object),
    # Deprecated in Weaviate. The row is here so that the denial can say what is missing.
    ProtocolRoute("GET HEAD", f"{_O}/{{id}}", _RETRIEVE, Weaviate.of_id),
    # Not filtered: a hidden object would have to look like a missing one, which has its own status.
    ProtocolRoute("GET HEAD", _ONE, _RETRIEVE, _path),
    replace(_MCP_ROW, refine=_refine_mcp),
    _list(_S, "classes"),
    ProtocolRoute("GET", _C, _METADATA, _path),
    # The shard of a tenant has the tenant's name.
    ProtocolRoute("GET", f"{_C}/shards", _METADATA, _path, plan_forward=Weaviate.filter_tenants),
    ProtocolRoute("GET", _TENANTS, _METADATA, _path, plan_forward=Weaviate.filter_tenants),
    ProtocolRoute("GET HEAD", f"{_TENANTS}/{{tenant}}", _METADATA, _name),
    ProtocolRoute("POST", f"{_C}/properties/{{property}}/tokenize", _METADATA, _path),
    _list(f"{_V1}/aliases", "aliases"),
    # The JavaScript client writes it this way; Weaviate accepts both.
    _list(f"{_V1}/aliases/", "aliases"),
    ProtocolRoute("GET", f"{_V1}/aliases/{{alias}}", _METADATA, _name),
    ProtocolRoute("GET", f"{_V1}/nodes", _METADATA, plan_forward=Weaviate.filter_nodes),
    ProtocolRoute(
        "GET", f"{_V1}/nodes/{{class}}", _METADATA, _path, plan_forward=Weaviate.filter_nodes
    ),
    _write_by_body("POST", _O, Weaviate.of_object, Weaviate.hint_of_object, json_object),
    _write("PUT PATCH DELETE", f"{_O}/{{id}}", Weaviate.of_id),
    _write("PUT PATCH", _ONE, Weaviate.of_object, json_object),
    _write("DELETE", _ONE),
    _write("POST PUT DELETE", _REFERENCES),
    _write_by_body(
        "POST", f"{_V1}/batch/objects", Weaviate.of_objects, Weaviate.hint_of_objects, json_object
    ),
    _write_by_body(
        "DELETE", f"{_V1}/batch/objects", Weaviate.of_matches, Weaviate.hint_of_objects, json_object
    ),
    _write_by_body(
        "POST", f"{_V1}/batch/references", Weaviate.of_references, Weaviate.hint_of_references,
        json_array,
    ),
    _renaming(
        _write_by_body("POST", _S, Weaviate.of_object, Weaviate.hint_of_object, json_object)
    ),
    _renaming(_write("PUT DELETE", _C)),
    _write("POST", f"{_C}/properties"),
    _write("PUT", f"{_C}/shards/{{shard}}"),
    _write("POST PUT DELETE", _TENANTS),
    # Points a name at another collection.
    ProtocolRoute("POST", f"{_V1}/aliases", _ADMIN),
    ProtocolRoute("PUT DELETE", f"{_V1}/aliases/{{alias}}", _ADMIN),
    # Reads and writes across collections.
    ProtocolRoute("POST", f"{_V1}/classifications", _ADMIN),
    ProtocolRoute("GET", f"{_V1}/classifications/{{id}}", _ADMIN),
    ProtocolRoute("GET", f"{_V1}/cluster/statistics", _ADMIN),
    ProtocolRoute("POST", f"{_V1}/replication/replicate", _ADMIN),
    ProtocolRoute("GET POST", f"{_V1}/authz/roles", _ADMIN),
    ProtocolRoute("GET", f"{_V1}/users/db", _ADMIN),
    # Copies of whole collections.
    ProtocolRoute("GET POST", f"{_V1}/backups/{{backend}}", _BULK),
    ProtocolRoute("GET DELETE", f"{_V1}/backups/{{backend}}/{{id}}", _BULK),
    ProtocolRoute("GET POST DELETE", f"{_V1}/backups/{{backend}}/{{id}}/restore", _BULK),
    ProtocolRoute("POST", f"{_V1}/export/{{backend}}", _BULK),
    ProtocolRoute("GET DELETE", f"{_V1}/export/{{backend}}/{{id}}", _BULK),
    # These reveal nothing about any collection.
    ProtocolRoute("GET", _V1, _OPEN),
    ProtocolRoute("GET", f"{_V1}/meta", _OPEN),
    ProtocolRoute("POST", f"{_V1}/tokenize", _OPEN),
    *(
        ProtocolRoute("GET", f"{_V1}/.well-known/{what}", _OPEN)
        for what in ("live", "ready", "openid-configuration")
    ),
    *GRPC_ROUTES,
    *WEB_ROUTES,
)  # fmt: skip

Weaviate.table = RouteTable(ROUTES)
