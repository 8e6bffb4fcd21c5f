"""Calls of Pinecone's gRPC interface beside their twins in REST: judged and filtered alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.grpc.protobuf import Values
from sidecar.http.grpc.wire import bytes_field, varint_field
from sidecar.http.request_target import canonical
from sidecar.protocols.pinecone.grpc_schema import RESPONSES
from sidecar.protocols.protocol import (
    FetchedResponse,
    RefusalResponse,
    RouteClass,
    SourceRef,
    Unresolved,
    Visibility,
)
from tests.sidecar.protocols.pinecone import wheel
from tests.sidecar.protocols.pinecone.calls import (
    CONTENT,
    Judged,
    judged_call,
    judged_request,
    pinecone,
)
from tests.sidecar.protocols.pinecone.front import LEVELS, MINE
from tests.sidecar.protocols.pinecone.grpc_server import TWINS
from tests.sidecar.protocols.pinecone.server import Server

WRITE = RouteClass.WRITE
V = {"vector": b"\0\0\x80\x3f", "topK": 3}
F = {"fields": {"a": {"string_value": "x"}}}
SHUT = {"namespace": "shut"}
CASES: list[tuple[str, Values]] = [
    ("Query", V),
    ("Query", {**V, **SHUT}),
    ("Query", {**V, "namespace": "__default__", "filter": F}),
    ("Query", {"topK": 3, "id": "1", **SHUT}),
    ("Query", {"topK": 3, "queries": [{"values": V["vector"], **SHUT}, {}]}),
    ("Query", {**SHUT, "queries": [{"namespace": "open"}]}),
    ("Fetch", {"ids": ["1"]}),
    ("Fetch", {"ids": ["1", "2"], **SHUT}),
    ("FetchByMetadata", {"filter": F, **SHUT}),
    ("FetchByMetadata", {"filter": F}),
    ("List", {}),
    ("List", {"prefix": "a", **SHUT}),
    ("List", {"paginationToken": "", **SHUT}),
    ("DescribeIndexStats", {}),
    ("DescribeIndexStats", {"filter": {}}),
    ("ListNamespaces", {"prefix": "s"}),
    ("DescribeNamespace", SHUT),
    ("CreateNamespace", {"name": "shut"}),
    ("DeleteNamespace", SHUT),
    ("Upsert", {"vectors": [b""], **SHUT}),
    ("Update", {"id": "1", "filter": F, **SHUT}),
    ("Delete", {"deleteAll": True, **SHUT}),
    ("Delete", {"ids": ["1"]}),
]


def twin(method: str, values: Values) -> tuple[str, str, Any]:
    """Method, target and body of the request in REST that asks the same."""
    name = wheel.methods()[method].input_type.name
    data = judged_call(method, values).request.body.data
    body = MessageToDict(wheel.message(name).FromString(data))
    verb, target = TWINS[method](body)
    return verb, target, body if verb == "POST" else None


@pytest.mark.parametrize("levels", [False, True])
def test_a_call_is_judged_as_its_twin_in_rest(levels: bool) -> None:
    for method, values in CASES:
        call = judged_call(method, values, pinecone(levels=levels))
        rest = judged_request(*twin(method, values), pinecone(levels=levels))
        assert call.decides == rest.decides, (method, values)
        # A denied write is recorded under the same source.
        assert call.hint == (call.sources[0] if call.route.route_class is WRITE else None)
        assert rest.hint == call.hint, (method, values)


@pytest.mark.parametrize(
    ("method", "values", "error"),
    [
        ("DescribeIndexStats", {"filter": F}, Unresolved),
        ("List", {"paginationToken": "unknown"}, Unresolved),
        ("FetchByMetadata", {"paginationToken": "unknown"}, Unresolved),
        ("Query", {"queries": [{}] * 1001}, Malformed),
        # It would be nothing to one reader, and null to another.
        ("Query", {**V, "filter": {"fields": {"a": {}}}}, Malformed),
    ],
)
def test_a_call_that_cannot_be_judged_is_refused(
    method: str, values: Values, error: type[Exception]
) -> None:
    with pytest.raises(error):
        judged_call(method, values)


@pytest.mark.parametrize(
    ("target", "class_"),
    [
        ("/grpc.health.v1.Health/Check", RouteClass.OPEN),
        ("/grpc.health.v1.Health/Watch", RouteClass.OPEN),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", RouteClass.ADMIN),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", RouteClass.ADMIN),
        ("/VectorService/Export", None),
        ("/VectorService/query", None),
        ("/pinecone.VectorService/Query", None),
        ("/VectorService/Query/", None),
    ],
)
def test_health_is_open_and_what_is_unknown_is_closed(
    target: str, class_: RouteClass | None
) -> None:
    match = pinecone().match("POST", canonical(target))
    assert (None if match is None else match.route.route_class) is class_


def visibility(*hidden: str, levels: Any = ("low", "medium")) -> Visibility:
    def permits(source: SourceRef) -> bool:
        return source.source_id.rpartition("/")[2] not in hidden

    return Visibility(permits, "level", levels)


def answered(call: Judged, server: Server, seen: Visibility) -> tuple[Any, Any, Any, int]:
    """What a minimal Pinecone gets of a call and what it answers; what the agent gets of that, and
    the number of records that were withheld."""
    planned = call.plan(seen)
    method = call.request.target.segments[1]
    described = wheel.methods()[method]
    data = call.request.body.data if planned.body is None else planned.body
    body = MessageToDict(wheel.message(described.input_type.name).FromString(data))
    _, answer = server.answer(*TWINS[method](body), json.dumps(body).encode())
    made = wheel.message(described.output_type.name)
    whole = ParseDict(answer, made(), ignore_unknown_fields=True)
    assert planned.filter_response is not None
    part = planned.filter_response(FetchedResponse(200, "", [], whole.SerializeToString()))
    return body, whole, made.FromString(part.body), part.withheld


@pytest.mark.parametrize("wanted", [True, False])
def test_a_query_returns_only_visible_records(wanted: bool) -> None:
    values = {**V, "namespace": "open", "filter": F} | ({"includeMetadata": True} if wanted else {})
    call = judged_call("Query", values, pinecone(levels=True))
    own = {"a": "x"}
    body, _, seen, withheld = answered(call, Server(*LEVELS), visibility())
    assert body["filter"] == {"$and": [MINE, own]}
    assert body["includeMetadata"] is True
    assert [each.id for each in seen.matches] == ["1", "3"]
    assert all(each.HasField("metadata") == wanted for each in seen.matches)
    assert withheld == 1  # that of two levels: Pinecone compares with any of them
    rest = judged_request(*twin("Query", values), pinecone(levels=True))
    assert json.loads(rest.plan(visibility()).body or b"")["filter"] == body["filter"]


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("Fetch", {"ids": ["1", "2", "3", "4", "5", "6", "7"], "namespace": "open"}),
        ("FetchByMetadata", {"filter": {}, "namespace": "open"}),
    ],
)
def test_a_fetch_returns_only_visible_records(method: str, values: Values) -> None:
    call = judged_call(method, values, pinecone(levels=True))
    body, _, seen, _ = answered(call, Server(*LEVELS), visibility())
    assert sorted(seen.vectors) == ["1", "3"]
    assert body.get("filter") == (MINE if method == "FetchByMetadata" else None)
    assert seen.vectors["1"].values == [1.0]
    assert seen.vectors["1"].metadata["text"] == "text of open 1"


def test_an_agent_that_may_see_everything_gets_the_very_bytes() -> None:
    call = judged_call("Query", V, pinecone(levels=True))
    assert call.plan(visibility(levels=None)) == (None,) * 6


@pytest.mark.parametrize(
    ("method", "levels"),
    [("List", None), ("FetchByMetadata", None), ("FetchByMetadata", ("low",))],
)
def test_a_page_token_stands_for_what_it_was_issued_for(method: str, levels: Any) -> None:
    protocol = pinecone(levels=levels is not None)
    call = judged_call(method, {"namespace": "open"}, protocol)
    planned = call.plan(visibility(levels=levels))
    assert planned.filter_response is not None
    answer = wheel.message(f"{method}Response")(pagination={"next": "more"}).SerializeToString()
    assert planned.filter_response(FetchedResponse(200, "", [], answer)).body == answer
    # On either wire.
    again = judged_call("List", {"paginationToken": "more", "namespace": "shut"}, protocol)
    assert again.sources == ("pinecone://kb/shut", "pinecone://kb/open")
    rest = judged_request("GET", "/vectors/list?paginationToken=more", None, protocol)
    assert rest.sources == ("pinecone://kb/__default__", "pinecone://kb/open")


def test_lists_show_what_may_be_read() -> None:
    server = Server("low", "low")
    _, _, seen, _ = answered(judged_call("ListNamespaces", {}), server, visibility("shut"))
    assert [each.name for each in seen.namespaces] == ["__default__", "open"]
    assert seen.total_count == 0
    _, _, seen, _ = answered(judged_call("DescribeIndexStats", {}), server, visibility("shut"))
    assert {name: each.vector_count for name, each in seen.namespaces.items()} == {
        "__default__": 2, "open": 2,
    }  # fmt: skip
    assert (seen.total_vector_count, seen.index_fullness, seen.dimension) == (4, 0, 2)
    assert not seen.HasField("memory_fullness")
    _, whole, seen, _ = answered(judged_call("DescribeIndexStats", {}), server, visibility())
    assert seen == whole


def record(metadata: bytes) -> bytes:
    return bytes_field(2, bytes_field(4, metadata))


def level(value: bytes) -> bytes:
    return bytes_field(1, bytes_field(1, b"level") + bytes_field(2, value))


LOW = level(bytes_field(3, b"low"))
STRANGE = {
    "an unknown field": varint_field(9, 1),
    "results of several queries": bytes_field(1, b""),
    "a level twice": record(LOW + LOW),
    "metadata that can't be read": record(b"\xff\xff"),
    "a level without a kind": record(level(b"")),
    "a level with two kinds": record(level(b"\x20\1" + bytes_field(3, b"low"))),
}


@pytest.mark.parametrize("data", STRANGE.values(), ids=STRANGE)
def test_a_response_in_an_unknown_form_is_withheld(data: bytes) -> None:
    planned = judged_call("Query", V, pinecone(levels=True)).plan(visibility())
    assert planned.filter_response is not None
    known = FetchedResponse(200, "", [], record(LOW))
    assert len(RESPONSES["QueryResponse"].decode(planned.filter_response(known).body).values) == 1
    with pytest.raises(UpstreamFailed):
        planned.filter_response(FetchedResponse(200, "", [], data))


def test_a_refusal_of_a_call_is_told_by_its_status() -> None:
    call, refusal = judged_call("Query", V), RefusalResponse.of(403, "denied", {})
    assert call.request.fields == [(b"content-type", CONTENT[True])]
    assert call.protocol.render_refusal(call.request, refusal) is None
    rest = judged_request("POST", "/query", {"topK": 1})
    assert rest.protocol.render_refusal(rest.request, refusal) is not None
    assert rest.protocol.render_refusal(None, refusal) is not None
