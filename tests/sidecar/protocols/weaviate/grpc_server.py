"""A minimal Weaviate over gRPC, made of the message classes in the official client's wheel. It has
the objects of `server.py`, and keeps every call that arrives."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from uuid import UUID

import grpc
from google.protobuf.message import Message
from weaviate.proto.v1 import (
    aggregate_pb2,
    base_pb2,
    batch_delete_pb2,
    batch_pb2,
    generative_pb2,
    health_weaviate_pb2,
    properties_pb2,
    search_get_pb2,
    tenants_pb2,
)

from tests.sidecar.protocols.weaviate.server import ALIASES, COLLECTIONS, REFERENCES, Server

TENANTS = ("ours", "theirs")
_HEALTH = health_weaviate_pb2.WeaviateHealthCheckResponse
_TEXTS = ("title", "level")


@dataclass
class GrpcServer:
    """`calls` are the methods that were called, each with its request and the call's metadata."""

    server: Server
    calls: list[tuple[str, Message, dict[str, Any]]] = field(default_factory=list)
    reads_streams: Event = field(default_factory=Event)
    """Cleared, it keeps a stream of messages from being read."""
    streams_ended: Event = field(default_factory=Event)
    """Set once a stream has ended, in whatever way."""

    def __post_init__(self) -> None:
        self.reads_streams.set()

    def search(self, request: Any, context: grpc.ServicerContext) -> Any:
        objects = self._objects("Search", request, context)
        found = [
            each for each in objects if _holds(request.filters, each) and each["id"] > request.after
        ]
        found = found[: request.limit or len(found)]
        reply = search_get_pb2.SearchReply(took=0.5)
        results = [self._result(each, request) for each in found]
        if request.HasField("group_by"):
            reply.group_by_results.add(name="all", number_of_objects=len(results), objects=results)
        else:
            reply.results.extend(results)
        if request.HasField("generative") and request.generative.HasField("grouped"):
            text = generative_pb2.GenerativeReply(result="a text of all")
            reply.generative_grouped_results.values.append(text)
        return reply

    def aggregate(self, request: Any, context: grpc.ServicerContext) -> Any:
        objects = self._objects("Aggregate", request, context)
        single = aggregate_pb2.AggregateReply.Single(objects_count=len(objects))
        return aggregate_pb2.AggregateReply(took=0.5, single_result=single)

    def tenants_get(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._objects("TenantsGet", request, context)
        hot = tenants_pb2.TENANT_ACTIVITY_STATUS_HOT
        wanted = request.names.values or TENANTS
        tenants = [tenants_pb2.Tenant(name=name, activity_status=hot) for name in wanted]
        return tenants_pb2.TenantsGetReply(took=0.5, tenants=tenants)

    def batch_objects(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._keep("BatchObjects", request, context)
        return batch_pb2.BatchObjectsReply(took=0.5)

    def batch_references(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._keep("BatchReferences", request, context)
        return batch_pb2.BatchReferencesReply(took=0.5)

    def batch_delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._keep("BatchDelete", request, context)
        return batch_delete_pb2.BatchDeleteReply(took=0.5, matches=2, successful=2)

    def batch_stream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Answers each message of the stream, which is kept as a call of its own."""
        context.add_callback(self.streams_ended.set)
        self.reads_streams.wait(30)
        for request in requests:
            self._keep("BatchStream", request, context)
            if request.HasField("start"):
                yield batch_pb2.BatchStreamReply(started={})
            if request.HasField("data"):
                uuids = [each.uuid for each in request.data.objects.values]
                done = [{"uuid": each} for each in uuids]
                yield batch_pb2.BatchStreamReply(acks={"uuids": uuids})
                yield batch_pb2.BatchStreamReply(results={"successes": done})

    @property
    def names(self) -> list[str]:
        return [each[0] for each in self.calls]

    def _keep(self, method: str, request: Message, context: grpc.ServicerContext) -> None:
        self.calls.append((method, request, dict(context.invocation_metadata())))

    def _objects(
        self, method: str, request: Any, context: grpc.ServicerContext
    ) -> list[dict[str, Any]]:
        self._keep(method, request, context)
        name = ALIASES.get(request.collection, request.collection)
        if name not in COLLECTIONS:
            context.abort(grpc.StatusCode.UNKNOWN, f"could not find class {name} in schema")
        return self.server.objects[name]

    def _result(self, each: dict[str, Any], request: Any) -> Any:
        result = search_get_pb2.SearchResult()
        if request.metadata.uuid:
            result.metadata.id = each["id"]
            result.metadata.id_as_bytes = UUID(each["id"]).bytes
        if request.metadata.creation_time_unix:
            result.metadata.creation_time_unix_present = True
            result.metadata.last_update_time_unix_present = True
        if request.metadata.distance:
            result.metadata.distance, result.metadata.distance_present = 0.25, True
        if request.generative.HasField("single"):
            result.generative.values.add(result=f"about {each['title']}")
        selected = request.properties if request.HasField("properties") else None
        result.properties.CopyFrom(self._properties(each, selected))
        return result

    def _properties(self, each: dict[str, Any], selected: Any) -> Any:
        found = search_get_pb2.PropertiesResult(target_collection=each["__typename"])
        all_of_them = selected is None or selected.return_all_nonref_properties
        for name in _TEXTS if all_of_them else selected.non_ref_properties:
            text = each.get(name)
            value = (
                properties_pb2.Value(null_value=0)
                if text is None
                else properties_pb2.Value(text_value=text)
            )
            found.non_ref_props.fields[name].CopyFrom(value)
        for wanted in () if selected is None else selected.ref_properties:
            target = REFERENCES[wanted.reference_property][0]
            reference = found.ref_props.add(prop_name=wanted.reference_property)
            reference.properties.append(
                self._properties(self.server.objects[target][0], wanted.properties)
            )
        return found


def _holds(where: Any, each: dict[str, Any]) -> bool:
    """Compares like Weaviate for a text tokenized by words: equal if any of them is."""
    parts = [_holds(one, each) for one in where.filters]
    match where.operator:
        case base_pb2.Filters.OPERATOR_AND:
            return all(parts)
        case base_pb2.Filters.OPERATOR_OR:
            return any(parts)
        case base_pb2.Filters.OPERATOR_UNSPECIFIED:
            return True
    name = where.target.property
    value = each["id"] if name == "_id" else each.get(name)
    texts = [*where.value_text_array.values, where.value_text]
    return value is not None and any(
        text.lower() in (str(value).lower(), *str(value).lower().split()) for text in texts
    )


def _check(_request: Message, _context: grpc.ServicerContext) -> Message:
    return _HEALTH(status=_HEALTH.SERVING)


@contextlib.contextmanager
def grpc_server(server: Server) -> Iterator[tuple[int, GrpcServer]]:
    """Yield the port of a running server, and what it was asked."""
    served = GrpcServer(server)
    health = {"Check": _handler(_check, health_weaviate_pb2.WeaviateHealthCheckRequest)}
    methods = {
        "Search": _handler(served.search, search_get_pb2.SearchRequest),
        "Aggregate": _handler(served.aggregate, aggregate_pb2.AggregateRequest),
        "TenantsGet": _handler(served.tenants_get, tenants_pb2.TenantsGetRequest),
        "BatchObjects": _handler(served.batch_objects, batch_pb2.BatchObjectsRequest),
        "BatchReferences": _handler(served.batch_references, batch_pb2.BatchReferencesRequest),
        "BatchDelete": _handler(served.batch_delete, batch_delete_pb2.BatchDeleteRequest),
        "BatchStream": grpc.stream_stream_rpc_method_handler(
            served.batch_stream,
            request_deserializer=batch_pb2.BatchStreamRequest.FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        ),
    }
    services = {"grpc.health.v1.Health": health, "weaviate.v1.Weaviate": methods}
    running = grpc.server(
        ThreadPoolExecutor(4),
        handlers=[
            grpc.method_handlers_generic_handler(name, handlers)
            for name, handlers in services.items()
        ],
    )
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    try:
        yield port, served
    finally:
        running.stop(None).wait()


def _handler(answer: Any, request: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=request.FromString,
        response_serializer=lambda reply: reply.SerializeToString(),
    )
