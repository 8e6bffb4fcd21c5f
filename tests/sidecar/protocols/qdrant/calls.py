"""Calls of Qdrant's gRPC interface as the proxy hands them to the protocol, without a connection:
from a message of the official client's own classes to the row and the sources."""

import json
from typing import Any, NamedTuple

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message as ClientMessage
from google.protobuf.message_factory import GetMessageClass
from qdrant_client.grpc import (
    collections_service_pb2,
    points_service_pb2,
    qdrant_pb2,
    snapshots_service_pb2,
)

from sidecar.http.attribution import Attribution
from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import (
    FetchedResponse,
    GrpcMessage,
    ProtocolRoute,
    RoutedRequest,
    SourceRef,
)
from sidecar.protocols.qdrant.routes import Qdrant
from sidecar.protocols.strict_body import Budget, json_object
from sidecar.proxy.messages.grpc_calls import IDENTITY, read_call
from tests.support.proxy import CLOCK, source

ALIASES = {"docs": "open_docs", "open_alias": "shut_docs"}
WHO = Attribution("somebody", None, None, None)
LIMIT = 4 * 1024 * 1024


FILES = (points_service_pb2, collections_service_pb2, snapshots_service_pb2, qdrant_pb2)
METHODS: dict[str, MethodDescriptor] = {
    f"{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def message_of(name: str, values: dict[str, Any]) -> ClientMessage:
    """The message of the call `<service>/<method>`, by default about the collection `docs`."""
    kind = METHODS[f"qdrant.{name}"].input_type
    if "collection_name" in kind.fields_by_name:
        values = {"collection_name": "docs", **values}
    made: ClientMessage = GetMessageClass(kind)(**values)
    return made


class Found(NamedTuple):
    route: ProtocolRoute
    request: RoutedRequest
    sources: tuple[str, ...]


def protocol(**changes: Any) -> Qdrant:
    return Qdrant(source(1, "qdrant", **changes), CLOCK.monotonic)


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def judged_call(method: str, message: ClientMessage | bytes, qdrant: Qdrant) -> Found:
    """Return what a call leads to. `method` is the path without its first slash."""
    match = qdrant.match("POST", canonical(f"/{method}"))
    assert match is not None, method
    assert match.route.rpc
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    body: GrpcMessage | None = None
    if match.route.message is not None:
        read = match.route.message
        body = read_call(read, framed(raw), "application/grpc", IDENTITY, LIMIT)
    return _judged(match.route, (), f"/{method}", body, qdrant)


def judged_request(method: str, path: str, body: Any, qdrant: Qdrant) -> Found:
    """Return what a request over HTTP leads to."""
    match = qdrant.match(method, canonical(path))
    assert match is not None, path
    parse = match.route.parse_body
    raw = b"" if body is None else json.dumps(body).encode()
    parsed = None if parse is None or body is None else json_object(raw, None, Budget())
    return _judged(match.route, match.path_params, path, parsed, qdrant)


def _judged(
    route: ProtocolRoute, params: tuple[str, ...], path: str, body: Any, qdrant: Qdrant
) -> Found:
    async def fetch(target: str, body: bytes | None = None, /) -> FetchedResponse:
        assert (target, body) == ("/aliases", None)
        listed = [{"alias_name": name, "collection_name": to} for name, to in ALIASES.items()]
        return FetchedResponse(200, "", [], json.dumps({"result": {"aliases": listed}}).encode())

    request = RoutedRequest("POST", canonical(path), params, body, fetch, [], WHO, Budget())
    if route.refine is not None:
        refined = route.refine(qdrant, request)
        assert refined is not None
        route = refined
    found: tuple[SourceRef, ...] = ()
    if route.find_sources is not None:
        # It awaits nothing but the look-up above, which doesn't wait.
        try:
            route.find_sources(qdrant, request).send(None)
        except StopIteration as finished:
            found = finished.value
    return Found(route, request, tuple(each.source_id for each in found))
