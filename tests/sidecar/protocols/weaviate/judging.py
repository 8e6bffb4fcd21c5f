"""Judges requests to Weaviate as the pipeline does, without servers: finds the row, reads the body,
and asks the row for the sources."""

import json
from typing import Any, NamedTuple

from google.protobuf.message import Message

from sidecar.http.attribution import Attribution
from sidecar.http.grpc.framing import frame
from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import FetchedResponse, RouteClass, RoutedRequest, SourceRef
from sidecar.protocols.strict_body import Budget
from sidecar.protocols.weaviate.routes import Weaviate
from sidecar.proxy.messages.grpc_calls import IDENTITY, read_call
from tests.sidecar.protocols.weaviate.server import ALIASES, Server
from tests.support.proxy import CLOCK, source

SERVICE = "/weaviate.v1.Weaviate"
_SERVER = Server("low")
_LIMIT = 1 << 20


class Judged(NamedTuple):
    route_class: RouteClass
    sources: list[str]
    """Their ids, without the scheme and alias."""
    filters: bool
    """Whether documents would be withheld by their levels."""
    hint: str | None
    """The id that the record of a denied write names, None for that of the data source."""


async def _fetch(target: str, _body: bytes | None = None, /) -> FetchedResponse:
    # Known from the list of aliases, so that it needs no look-up of its own.
    assert target.rpartition("/")[2] not in ALIASES
    status, body = _SERVER.answer("GET", target, b"")
    return FetchedResponse(status, "", [], json.dumps(body).encode())


async def judge(method: str, target: str, body: Any = None, **settings: Any) -> Judged:
    """Judge a request whose body is JSON, or the message of a gRPC call."""
    weaviate = Weaviate(source(1, "weaviate", **settings), CLOCK.monotonic)
    found = weaviate.match(method, canonical(target))
    assert found is not None, target
    route = found.route
    who, budget = Attribution("u", None, None, None), Budget()
    read = None
    if route.message is not None:
        data = body if isinstance(body, bytes) else body.SerializeToString()
        media = "application/grpc-web+proto" if route.web else "application/grpc"
        read = read_call(route.message, frame(data), media, IDENTITY, _LIMIT)
    elif route.parse_body is not None:
        read = route.parse_body(json.dumps(body).encode(), "application/json", budget)
    request = RoutedRequest(
        method, canonical(target), found.path_params, read, _fetch, [], who, budget
    )
    if route.refine is not None:
        refined = route.refine(weaviate, request)
        assert refined is not None
        route = refined
    assert route.find_sources is not None
    sources = await route.find_sources(weaviate, request)
    hinted = route.hint_source and route.hint_source(weaviate, request)
    ids = [_named(each) for each in sources]
    return Judged(
        route.route_class, ids, route.filters_documents, None if hinted is None else _named(hinted)
    )


def _named(source: SourceRef) -> str:
    return source.source_id.removeprefix("weaviate://kb/")


async def judge_call(
    method: str, message: Message | bytes, prefix: str = "", **settings: Any
) -> Judged:
    return await judge("POST", f"{prefix}{SERVICE}/{method}", message, **settings)
