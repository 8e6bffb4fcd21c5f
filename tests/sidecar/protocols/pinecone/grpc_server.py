"""The gRPC interface of the minimal Pinecone (`server.py`), over the message classes of a client's
wheel: each call is answered as its twin in REST. It is not the real service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.sidecar.protocols.pinecone import wheel
from tests.sidecar.protocols.pinecone.server import Server

Body = dict[str, Any]

SERVING = b"\x08\x01"
"""A `HealthCheckResponse` whose status is `SERVING`."""


def _of_query(path: str) -> Callable[[Body], tuple[str, str]]:
    return lambda body: ("GET", f"{path}?{urlencode(body, doseq=True, quote_via=quote)}")


def _of_body(path: str) -> Callable[[Body], tuple[str, str]]:
    return lambda _: ("POST", path)


TWINS: dict[str, Callable[[Body], tuple[str, str]]] = {
    "Query": _of_body("/query"),
    "Fetch": _of_query("/vectors/fetch"),
    "FetchByMetadata": _of_body("/vectors/fetch_by_metadata"),
    "List": _of_query("/vectors/list"),
    "DescribeIndexStats": _of_body("/describe_index_stats"),
    "ListNamespaces": _of_query("/namespaces"),
    "DescribeNamespace": lambda body: ("GET", f"/namespaces/{body['namespace']}"),
    "CreateNamespace": _of_body("/namespaces"),
    "DeleteNamespace": lambda body: ("DELETE", f"/namespaces/{body['namespace']}"),
    "Upsert": _of_body("/vectors/upsert"),
    "Update": _of_body("/vectors/update"),
    "Delete": _of_body("/vectors/delete"),
}
"""Method and target of the request in REST that asks the same, by its body."""


class GrpcServer:
    """`seen` has every call that arrived: its method, its message's bytes and its metadata."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: list[tuple[str, bytes, dict[str, Any]]] = []
        self.port = 0

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.seen]

    def last(self) -> Body:
        """The last message that arrived, as JSON."""
        method, data, _ = self.seen[-1]
        name = wheel.methods()[method].input_type.name
        whole: Body = MessageToDict(wheel.message(name).FromString(data))
        return whole

    @contextmanager
    def running(self) -> Iterator[GrpcServer]:
        served = grpc.server(ThreadPoolExecutor(2), handlers=list(self._handlers()))
        self.port = served.add_insecure_port("127.0.0.1:0")
        served.start()
        try:
            yield self
        finally:
            served.stop(None).wait()

    def _handlers(self) -> Iterator[Any]:
        health = grpc.unary_unary_rpc_method_handler(lambda _request, _context: SERVING)
        yield grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": health})
        calls = {
            # Bytes, so that a test sees what arrived.
            name: grpc.unary_unary_rpc_method_handler(partial(self._answer, method))
            for name, method in wheel.methods().items()
        }
        yield grpc.method_handlers_generic_handler("VectorService", calls)

    def _answer(self, method: Any, data: bytes, context: grpc.ServicerContext) -> bytes:
        self.seen.append((method.name, data, dict(context.invocation_metadata())))
        asked = wheel.message(method.input_type.name).FromString(data)
        body = MessageToDict(asked)
        _, answer = self.server.answer(*TWINS[method.name](body), json.dumps(body).encode())
        made = wheel.message(method.output_type.name)()
        return bytes(ParseDict(answer, made, ignore_unknown_fields=True).SerializeToString())
