"""The gRPC interface of the minimal Qdrant (`server.py`), over the message classes and conversions
inside its client's wheel. It is not the real server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass
from qdrant_client import QdrantClient
from qdrant_client import grpc as g
from qdrant_client import models as m
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.grpc import collections_service_pb2, points_service_pb2, qdrant_pb2

from tests.sidecar.protocols.qdrant.server import VECTORS, Server

FILES = (points_service_pb2, collections_service_pb2, qdrant_pb2)


class GrpcServer:
    """A server of gRPC with the data of `server`. `seen` has every call that arrived: the method,
    its message and its metadata; `raw` has its bytes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: list[tuple[str, Any, dict[str, Any]]] = []
        self.raw: list[bytes] = []
        self.port = 0

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.seen]

    @contextmanager
    def running(self) -> Iterator["GrpcServer"]:
        served = grpc.server(ThreadPoolExecutor(2), handlers=list(self._handlers()))
        self.port = served.add_insecure_port("127.0.0.1:0")
        served.start()
        try:
            yield self
        finally:
            served.stop(None).wait()

    def _handlers(self) -> Iterator[Any]:
        for file in FILES:
            for service in file.DESCRIPTOR.services_by_name.values():
                handlers = {
                    method.name: grpc.unary_unary_rpc_method_handler(
                        partial(self._answer, f"{service.name}/{method.name}", method.input_type),
                        response_serializer=GetMessageClass(method.output_type).SerializeToString,
                    )
                    for method in service.methods
                }
                yield grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _answer(
        self, method: str, kind: Descriptor, raw: bytes, context: grpc.ServicerContext
    ) -> Any:
        request: Any = GetMessageClass(kind).FromString(raw)
        self.raw.append(raw)
        metadata = dict(context.invocation_metadata())
        self.seen.append((method, request, metadata))
        try:
            return _METHODS[method](self.server.local, request)
        except (ValueError, KeyError) as error:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: {error}")


def _optional(convert: Any, request: Any, member: str) -> Any:
    return convert(getattr(request, member)) if request.HasField(member) else None


def _asked(request: Any) -> dict[str, Any]:
    """What all searches have."""
    return {
        "query_filter": _optional(GrpcToRest.convert_filter, request, "filter"),
        "limit": request.limit or 10,
        "with_payload": _payload(request, default=False),
    }


def _payload(request: Any, *, default: bool) -> Any:
    selected = _optional(GrpcToRest.convert_with_payload_selector, request, "with_payload")
    return default if selected is None else selected


def _scored(points: Any) -> list[Any]:
    return [RestToGrpc.convert_scored_point(each) for each in points]


def _lookup(request: Any) -> Any:
    if not request.HasField("lookup_from"):
        return None
    return m.LookupLocation(collection=request.lookup_from.collection_name)


def _query_points(local: QdrantClient, request: Any) -> list[Any]:
    prefetch = [GrpcToRest.convert_prefetch_query(each) for each in request.prefetch]
    found = local.query_points(
        request.collection_name,
        query=_optional(GrpcToRest.convert_query, request, "query"),
        prefetch=prefetch or None,
        using=request.using or None,
        lookup_from=_lookup(request),
        **_asked(request),
    )
    return _scored(found.points)


def _search_points(local: QdrantClient, request: Any) -> list[Any]:
    query = list(request.vector)
    return _scored(local.query_points(request.collection_name, query, **_asked(request)).points)


def _recommend_points(local: QdrantClient, request: Any) -> list[Any]:
    vectors = [list(each.dense.data or each.data) for each in request.positive_vectors]
    positive = [*map(GrpcToRest.convert_point_id, request.positive), *vectors]
    query = m.RecommendQuery(recommend=m.RecommendInput(positive=positive))
    return _scored(local.query_points(request.collection_name, query, **_asked(request)).points)


def _grouped(local: QdrantClient, request: Any, query: Any) -> Any:
    return local.query_points_groups(
        request.collection_name,
        group_by=request.group_by,
        query=query,
        group_size=request.group_size or 3,
        with_lookup=_optional(GrpcToRest.convert_with_lookup, request, "with_lookup"),
        **_asked(request),
    )


def _groups(local: QdrantClient, request: Any, query: Any, response: Any) -> Any:
    return response(
        result=RestToGrpc.convert_groups_result(_grouped(local, request, query)), time=0.1
    )


def _scroll(local: QdrantClient, request: Any) -> Any:
    points, following = local.scroll(
        request.collection_name,
        scroll_filter=_optional(GrpcToRest.convert_filter, request, "filter"),
        limit=request.limit or 10,
        with_payload=_payload(request, default=True),
    )
    page = g.ScrollResponse(result=map(RestToGrpc.convert_record, points), time=0.1)
    if following is not None:
        page.next_page_offset.CopyFrom(RestToGrpc.convert_extended_point_id(following))
    return page


def _get(local: QdrantClient, request: Any) -> Any:
    ids = [GrpcToRest.convert_point_id(each) for each in request.ids]
    points = local.retrieve(request.collection_name, ids, _payload(request, default=False))
    return g.GetResponse(result=map(RestToGrpc.convert_record, points), time=0.1)


def _count(local: QdrantClient, request: Any) -> Any:
    found = local.count(
        request.collection_name, _optional(GrpcToRest.convert_filter, request, "filter")
    )
    return g.CountResponse(result=g.CountResult(count=found.count), time=0.1)


def _upsert(local: QdrantClient, request: Any) -> Any:
    points = [GrpcToRest.convert_point_struct(each) for each in request.points]
    local.upsert(request.collection_name, points)
    return _written()


def _update_batch(local: QdrantClient, request: Any) -> Any:
    operations = [GrpcToRest.convert_points_update_operation(each) for each in request.operations]
    local.batch_update_points(request.collection_name, operations)
    results = [g.UpdateResult(operation_id=1, status=g.UpdateStatus.Completed)] * len(operations)
    return g.UpdateBatchResponse(result=results, time=0.1)


def _written() -> Any:
    done = g.UpdateResult(operation_id=1, status=g.UpdateStatus.Completed)
    return g.PointsOperationResponse(result=done, time=0.1)


def _aliases(found: Any) -> Any:
    aliases = [
        g.AliasDescription(alias_name=each.alias_name, collection_name=each.collection_name)
        for each in found.aliases
    ]
    return g.ListAliasesResponse(aliases=aliases, time=0.1)


def _collections(local: QdrantClient, _request: Any) -> Any:
    found = local.get_collections().collections
    names = [g.CollectionDescription(name=each.name) for each in found]
    return g.ListCollectionsResponse(collections=names, time=0.1)


def _create(local: QdrantClient, request: Any) -> Any:
    vectors = _optional(GrpcToRest.convert_vectors_config, request, "vectors_config")
    local.create_collection(request.collection_name, vectors_config=vectors or VECTORS)
    return g.CollectionOperationResponse(result=True, time=0.1)


def _exists(local: QdrantClient, request: Any) -> Any:
    exists = local.collection_exists(request.collection_name)
    return g.CollectionExistsResponse(result=g.CollectionExists(exists=exists), time=0.1)


def _info(local: QdrantClient, request: Any) -> Any:
    found = RestToGrpc.convert_collection_info(local.get_collection(request.collection_name))
    return g.GetCollectionInfoResponse(result=found, time=0.1)


def _batch(name: str, points: Any, response: Any, local: QdrantClient, request: Any) -> Any:
    found = [g.BatchResult(result=points(local, each)) for each in getattr(request, name)]
    return response(result=found, time=0.1)


def _list(points: Any, response: Any, local: QdrantClient, request: Any) -> Any:
    return response(result=points(local, request), time=0.1)


_METHODS: dict[str, Any] = {
    "Points/Query": partial(_list, _query_points, g.QueryResponse),
    "Points/QueryBatch": partial(_batch, "query_points", _query_points, g.QueryBatchResponse),
    "Points/QueryGroups": lambda local, request: _groups(
        local, request, _optional(GrpcToRest.convert_query, request, "query"), g.QueryGroupsResponse
    ),
    "Points/Search": partial(_list, _search_points, g.SearchResponse),
    "Points/SearchBatch": partial(_batch, "search_points", _search_points, g.SearchBatchResponse),
    "Points/SearchGroups": lambda local, request: _groups(
        local, request, list(request.vector), g.SearchGroupsResponse
    ),
    "Points/Recommend": partial(_list, _recommend_points, g.RecommendResponse),
    "Points/Scroll": _scroll,
    "Points/Get": _get,
    "Points/Count": _count,
    "Points/Upsert": _upsert,
    "Points/UpdateBatch": _update_batch,
    "Points/CreateFieldIndex": lambda _local, _request: _written(),
    "Collections/List": _collections,
    "Collections/Get": _info,
    "Collections/Create": _create,
    "Collections/CollectionExists": _exists,
    "Collections/ListAliases": lambda local, _: _aliases(local.get_aliases()),
    "Collections/ListCollectionAliases": lambda local, request: _aliases(
        local.get_collection_aliases(request.collection_name)
    ),
    "Qdrant/HealthCheck": lambda _local, _request: g.HealthCheckReply(
        title="qdrant - minimal", version="1.19.0"
    ),
}
