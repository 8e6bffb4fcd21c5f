"""How the protocol judges a request in REST and a call of gRPC, without a sidecar."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from sidecar.http.attribution import Attribution
from sidecar.http.grpc.framing import frame
from sidecar.http.grpc.protobuf import Values
from sidecar.http.request_target import canonical
from sidecar.protocols.pinecone.grpc_schema import SCHEMA
from sidecar.protocols.pinecone.routes import Pinecone
from sidecar.protocols.protocol import (
    ForwardPlan,
    ProtocolRoute,
    RouteClass,
    RoutedRequest,
    Sources,
    Visibility,
)
from sidecar.protocols.strict_body import Budget
from sidecar.proxy.messages.grpc_calls import IDENTITY, read_call
from tests.support.proxy import CLOCK, source

WHO = Attribution("ada", None, None, None)
CONTENT = {False: b"application/json", True: b"application/grpc"}


class Judged(NamedTuple):
    """A request with the row that judges it."""

    protocol: Pinecone
    route: ProtocolRoute
    request: RoutedRequest
    found: Sources

    @property
    def sources(self) -> tuple[str, ...]:
        """The ids of the sources."""
        return tuple(each.source_id for each in self.found)

    @property
    def decides(self) -> tuple[RouteClass, bool, bool, tuple[str, ...]]:
        """What the decision follows from."""
        route = self.route
        return (
            route.route_class, route.filters_documents, route.plan_forward is not None,
            self.sources,
        )  # fmt: skip

    @property
    def hint(self) -> str | None:
        """The source that the record of a denied write names."""
        found = self.route.hint_source and self.route.hint_source(self.protocol, self.request)
        return found and found.source_id

    def plan(self, visibility: Visibility) -> ForwardPlan:
        assert self.route.plan_forward is not None
        return self.route.plan_forward(self.protocol, self.request, self.found, visibility)


def pinecone(*, levels: bool = False) -> Pinecone:
    changes = {"sensitivity_field": "level"} if levels else {}
    return Pinecone(source(1, "pinecone", **changes), CLOCK.monotonic)


def judged_call(method: str, values: Values | bytes, protocol: Pinecone | None = None) -> Judged:
    """Judge a call of gRPC with this message. Raises what the protocol raises."""
    target = f"/VectorService/{method}"
    data = values if isinstance(values, bytes) else SCHEMA[f"{method}Request"].encode(values)
    return _judged(protocol or pinecone(), "POST", target, data, rpc=True)


def judged_request(
    method: str, target: str, body: Any = None, protocol: Pinecone | None = None
) -> Judged:
    """Judge a request in REST. Raises what the protocol raises."""
    data = b"" if body is None else orjson.dumps(body)
    return _judged(protocol or pinecone(), method, target, data, rpc=False)


def _judged(protocol: Pinecone, method: str, target: str, data: bytes, *, rpc: bool) -> Judged:
    async def fetch(_: str, _body: bytes | None = None) -> Any:
        raise AssertionError("nothing is looked up here")

    path, body, budget = canonical(target), None, Budget()
    match = protocol.match(method, path)
    assert match is not None, target
    route = match.route
    assert route.rpc is rpc
    if route.message is not None:
        body = read_call(route.message, frame(data), "application/grpc", IDENTITY, len(data))
    elif route.parse_body is not None:
        body = route.parse_body(data, "application/json", budget)
    fields = [(b"content-type", CONTENT[rpc])]
    asked = RoutedRequest(method, path, match.path_params, body, fetch, fields, WHO, budget)
    if route.refine is not None:
        refined = route.refine(protocol, asked)
        assert refined is not None
        route = refined
    found = route.find_sources_now and route.find_sources_now(protocol, asked)
    return Judged(protocol, route, asked, found or ())
