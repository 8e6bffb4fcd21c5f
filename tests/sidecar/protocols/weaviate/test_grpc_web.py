"""Weaviate's gRPC-Web, on the port of REST: judged, filtered and denied as gRPC is, in both forms
of its bodies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message
from weaviate.proto.v1 import search_get_pb2, tenants_pb2

from policies.definitions.model import Policy
from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.grpc.framing import frame, unframe
from sidecar.http.grpc.web import decode_body, encode_body, read_response, trailers_frame, web_form
from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import (
    FetchedResponse,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
)
from sidecar.protocols.strict_body import Budget
from sidecar.protocols.weaviate.grpc_routes import GRPC_ROUTES, WEB_ROUTES, render_web_refusal
from sidecar.protocols.weaviate.routes import Weaviate
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.proxy_metrics import UpstreamUnreachable
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.weaviate.front import OPEN
from tests.sidecar.protocols.weaviate.grpc_server import GrpcServer, grpc_server
from tests.sidecar.protocols.weaviate.judging import judge_call
from tests.sidecar.protocols.weaviate.server import Server
from tests.sidecar.proxy.raw_client import one
from tests.support.proxy import CLOCK, policy, source
from tests.support.scripted_source import Script, Seen

Search, Reply = search_get_pb2.SearchRequest, search_get_pb2.SearchReply
BINARY, TEXT = "application/grpc-web+proto", "application/grpc-web-text+proto"
LIMIT = 1 << 20


def bridged(server: Server, grpc_port: int) -> Script:
    """A script that answers REST itself, and passes gRPC-Web on to the server of gRPC."""
    rest = scripted(server.answer)

    def call(path: str, message: bytes) -> bytes:
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            try:
                answer = channel.unary_unary(path)(message, timeout=10)
            except grpc.RpcError as error:
                lines = f"grpc-status: {error.code().value[0]}\r\n"
                return trailers_frame(lines.encode())
            return frame(answer) + trailers_frame(b"grpc-status: 0\r\n")

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if not seen.target.startswith("/v1/grpc-web/"):
            return await rest(seen, writer)
        [content_type] = seen.values("content-type")
        form = web_form(content_type.encode())
        assert form is not None
        message = unframe(decode_body(seen.body, form), b"", LIMIT)
        path = seen.target.removeprefix("/v1/grpc-web")
        frames = await asyncio.to_thread(call, path, message)
        body = encode_body(frames, form)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        return None

    return script


@asynccontextmanager
async def web_front(
    tmp_path: Path, server: Server, *policies: Policy, **changes: Any
) -> AsyncIterator[tuple[Minimal, GrpcServer]]:
    with grpc_server(server) as (port, served):
        script = bridged(server, port)
        async with minimal(tmp_path, "weaviate", script, *policies, **changes) as front:
            yield front, served


class Answer(NamedTuple):
    message: bytes | None
    status: int
    told: str


async def call(
    front: Minimal, media: str, message: Message | bytes, method: str = "Weaviate/Search"
) -> Answer:
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    form = web_form(media.encode())
    assert form is not None
    body = encode_body(frame(raw), form)
    target = f"/v1/grpc-web/weaviate.v1.{method}"
    lines = f"POST {target} HTTP/1.1\r\nHost: kb\r\nContent-Type: {media}\r\n"
    head = f"{lines}Content-Length: {len(body)}\r\n\r\n".encode()
    answered = await one(front.port, head + body)
    assert answered.status == 200, answered.raw
    assert answered.fields["content-type"] == media
    found, trailers = read_response(decode_body(answered.body, form), b"", LIMIT)
    fields = dict(each.split(": ", 1) for each in trailers.decode().splitlines())
    return Answer(found, int(fields["grpc-status"]), fields.get("grpc-message", ""))


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_web.py::"
    "test_each_method_has_the_same_row_in_its_web_form"
)
@pytest.mark.parametrize("media", [BINARY, TEXT])
async def test_a_call_is_judged_as_one_of_grpc_is(tmp_path: Path, media: str) -> None:
    async with web_front(tmp_path, Server("low"), OPEN) as (front, served):
        found = await call(front, media, Search(collection="Open"))
        assert found.status == 0
        assert found.message is not None
        assert len(Reply.FromString(found.message).results) == 1
        for denied in (Search(collection="Shut"), Search(collection="OpenAlias")):
            found = await call(front, media, denied)
            assert (found.message, found.status) == (None, 7)
            assert "weaviate://kb/Shut" in found.told
        twice = Search(collection="Open").SerializeToString() * 2
        assert (await call(front, media, twice)).status == 3
        assert (await call(front, media, b"", "Weaviate/BatchStream")).status == 7
        # Denied by Weaviate itself, without a message.
        assert (await call(front, media, Search(collection="OpenNone"))).status == 2
        assert served.names == ["Search", "Search"]
        assert [each[1] for each in await front.sources()] == [
            "weaviate://kb/Open", "weaviate://kb/Shut", "weaviate://kb/Shut", "weaviate://kb",
            "weaviate://kb", "weaviate://kb/OpenNone",
        ]  # fmt: skip


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/weaviate/test_grpc_filter.py::"
    "test_only_visible_objects_are_returned"
)
@pytest.mark.parametrize("media", [BINARY, TEXT])
async def test_a_response_is_filtered(tmp_path: Path, media: str) -> None:
    marked = {"sensitivity_field": "level", "sensitivity": "low"}
    readers = policy(max_sensitivity="medium", denied_sources=("weaviate://kb/Open/theirs",))
    server = Server("low", "high", "low or critical")
    async with web_front(tmp_path, server, readers, **marked) as (front, _):
        found = await call(front, media, Search(collection="Open"))
        assert found.message is not None
        [only] = Reply.FromString(found.message).results
        assert only.properties.non_ref_props.fields["title"].text_value == "text of Open 1"
        # A failure of Weaviate's has no message to filter.
        assert (await call(front, media, Search(collection="None"))).status == 2
        asked = tenants_pb2.TenantsGetRequest(collection="Open")
        tenants = await call(front, media, asked, "Weaviate/TenantsGet")
        assert tenants.message is not None
        listed = tenants_pb2.TenantsGetReply.FromString(tenants.message).tenants
        assert [each.name for each in listed] == ["ours"]


def test_each_method_has_the_same_row_in_its_web_form() -> None:
    for row, web in zip(GRPC_ROUTES, WEB_ROUTES, strict=True):
        assert web.pattern == f"/v1/grpc-web{row.pattern}"
        assert (row.rpc, row.web, web.rpc, web.web) == (True, False, False, True)
        if row.stream:  # gRPC-Web has none
            assert (web.route_class, web.message) == (RouteClass.ADMIN, None)
            continue
        same = ("route_class", "message", "find_sources", "plan_forward", "filters_documents")
        assert all(getattr(row, name) is getattr(web, name) for name in same), row.pattern


async def test_a_search_in_its_web_form_is_judged_alike() -> None:
    for settings in ({}, {"sensitivity_field": "level"}):
        for search in (Search(collection="Open"), Search(collection="Open", after="1")):
            judged = await judge_call("Search", search, **settings)
            web = await judge_call("Search", search, prefix="/v1/grpc-web", **settings)
            assert web == judged
            assert web.route_class is RouteClass.RETRIEVE


def _request(fields: list[tuple[bytes, bytes]]) -> RoutedRequest:
    async def fetch(_target: str, _body: bytes | None = None, /) -> FetchedResponse:
        raise AssertionError("nothing is looked up here")

    who = Attribution("u", None, None, None)
    target = canonical("/v1/grpc-web/weaviate.v1.Weaviate/Search")
    return RoutedRequest("POST", target, (), None, fetch, fields, who, Budget())


def test_a_refusal_has_the_form_of_the_request() -> None:
    decision = {"decision": "DENY", "policy_name": "p", "reason": "r", "event_id": "e"}
    for media in (BINARY, TEXT):
        fields = [(b"Content-Type", media.encode())]
        response = render_web_refusal(_request(fields), RefusalResponse(403, "no 100%", decision))
        assert (response.status, response.fields) == (200, fields)
        form = web_form(media.encode())
        assert form is not None
        found = read_response(decode_body(response.body, form), b"", LIMIT)
        assert found.message is None
        assert found.trailers.startswith(b"grpc-status: 7\r\ngrpc-message: no 100%25\r\n")
    # A response that can't be judged is withheld, which another call would not change.
    weaviate = Weaviate(source(1, "weaviate"), CLOCK.monotonic)
    asked = _request([(b"content-type", BINARY.encode())])
    for error, status in ((UpstreamFailed("unreadable"), 13), (UpstreamUnreachable("away"), 14)):
        local = LocalResponse.of_error(error).in_format_of(weaviate, asked)
        told = read_response(local.body, b"", LIMIT).trailers
        assert told.startswith(b"grpc-status: %d\r\n" % status), told
