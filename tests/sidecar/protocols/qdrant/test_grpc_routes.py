"""A call of Qdrant's gRPC interface and the request over HTTP that asks the same have the same
class and the same sources, so they get the same decision."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import RefusalResponse, RouteClass
from sidecar.protocols.qdrant.routes import Qdrant
from sidecar.protocols.strict_body import MAX_PARTS
from tests.sidecar.protocols.minimal import minimal, scripted
from tests.sidecar.protocols.qdrant.calls import (
    METHODS,
    Found,
    framed,
    judged_call,
    judged_request,
    message_of,
    protocol,
)
from tests.sidecar.protocols.qdrant.front import OPEN
from tests.sidecar.protocols.qdrant.server import Server
from tests.sidecar.proxy.http2_client import Http2Client
from tests.support.ports import free_port

C = "/collections/open_docs"
P = f"{C}/points"
# The request over HTTP that does the same.
TWINS = {
    "Points/Query": ("POST", f"{P}/query"),
    "Points/QueryBatch": ("POST", f"{P}/query/batch"),
    "Points/QueryGroups": ("POST", f"{P}/query/groups"),
    "Points/Search": ("POST", f"{P}/search"),
    "Points/SearchBatch": ("POST", f"{P}/search/batch"),
    "Points/SearchGroups": ("POST", f"{P}/search/groups"),
    "Points/Recommend": ("POST", f"{P}/recommend"),
    "Points/RecommendBatch": ("POST", f"{P}/recommend/batch"),
    "Points/RecommendGroups": ("POST", f"{P}/recommend/groups"),
    "Points/Discover": ("POST", f"{P}/discover"),
    "Points/DiscoverBatch": ("POST", f"{P}/discover/batch"),
    "Points/Scroll": ("POST", f"{P}/scroll"),
    "Points/Get": ("POST", P),
    "Points/Count": ("POST", f"{P}/count"),
    "Points/Facet": ("POST", f"{C}/facet"),
    "Points/SearchMatrixPairs": ("POST", f"{P}/search/matrix/pairs"),
    "Points/SearchMatrixOffsets": ("POST", f"{P}/search/matrix/offsets"),
    "Points/Upsert": ("PUT", P),
    "Points/Delete": ("POST", f"{P}/delete"),
    "Points/UpdateVectors": ("PUT", f"{P}/vectors"),
    "Points/DeleteVectors": ("POST", f"{P}/vectors/delete"),
    "Points/SetPayload": ("POST", f"{P}/payload"),
    "Points/OverwritePayload": ("PUT", f"{P}/payload"),
    "Points/DeletePayload": ("POST", f"{P}/payload/delete"),
    "Points/ClearPayload": ("POST", f"{P}/payload/clear"),
    "Points/UpdateBatch": ("POST", f"{P}/batch"),
    "Points/CreateFieldIndex": ("PUT", f"{C}/index"),
    "Points/DeleteFieldIndex": ("DELETE", f"{C}/index/text"),
    "Points/CreateVectorName": ("PUT", f"{C}/vectors/v"),
    "Points/DeleteVectorName": ("DELETE", f"{C}/vectors/v"),
    "Collections/Get": ("GET", C),
    "Collections/List": ("GET", "/collections"),
    "Collections/Create": ("PUT", C),
    "Collections/Update": ("PATCH", C),
    "Collections/Delete": ("DELETE", C),
    "Collections/UpdateAliases": ("POST", "/collections/aliases"),
    "Collections/ListCollectionAliases": ("GET", f"{C}/aliases"),
    "Collections/ListAliases": ("GET", "/aliases"),
    "Collections/CollectionClusterInfo": ("GET", f"{C}/cluster"),
    "Collections/CollectionExists": ("GET", f"{C}/exists"),
    "Collections/UpdateCollectionClusterSetup": ("POST", f"{C}/cluster"),
    "Collections/CreateShardKey": ("PUT", f"{C}/shards"),
    "Collections/DeleteShardKey": ("POST", f"{C}/shards/delete"),
    "Collections/ListShardKeys": ("GET", f"{C}/shards"),
    "Snapshots/Create": ("POST", f"{C}/snapshots"),
    "Snapshots/List": ("GET", f"{C}/snapshots"),
    "Snapshots/Delete": ("DELETE", f"{C}/snapshots/s"),
    "Snapshots/CreateFull": ("POST", "/snapshots"),
    "Snapshots/ListFull": ("GET", "/snapshots"),
    "Snapshots/DeleteFull": ("DELETE", "/snapshots/s"),
    "Qdrant/HealthCheck": ("GET", "/"),
}
# Methods that the client doesn't have, or has no twin of over HTTP.
OTHERS = {
    "grpc.health.v1.Health/Check": RouteClass.OPEN,
    "qdrant.ShardSnapshots/Recover": RouteClass.BULK,
    "qdrant.StorageRead/ReadWhole": RouteClass.BULK,
    "qdrant.PointsInternal/Scroll": RouteClass.ADMIN,
    "qdrant.CollectionsInternal/Get": RouteClass.ADMIN,
    "qdrant.QdrantInternal/GetAuditLog": RouteClass.ADMIN,
    "qdrant.Raft/Send": RouteClass.ADMIN,
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo": RouteClass.ADMIN,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": RouteClass.ADMIN,
}
UNKNOWN = (
    "qdrant.Points/Teleport", "qdrant.Points/search", "qdrant.Points/Search/",
    "qdrant.Point/Search", "Points/Search", "qdrant.Points",
    "grpc.health.v1.Health/List", "qdrant.Snapshots/Create/x",
)  # fmt: skip


def test_each_method_has_the_class_of_its_twin() -> None:
    qdrant = protocol()
    assert {f"qdrant.{name}" for name in TWINS} == METHODS.keys()
    for name, (method, path) in TWINS.items():
        twin = qdrant.match(method, canonical(path))
        call = qdrant.match("POST", canonical(f"/qdrant.{name}"))
        assert twin is not None
        assert call is not None
        assert call.route.route_class is twin.route.route_class, name
        # Names change, or are looked up, in the same cases.
        assert call.route.before_forward is twin.route.before_forward
        assert call.route.after_forward is twin.route.after_forward
        assert (call.route.find_sources is None) == (twin.route.find_sources is None)
        assert (call.route.plan_forward is None) == (twin.route.plan_forward is None)
    for name, route_class in OTHERS.items():
        assert judged_call(name, b"", qdrant).route.route_class is route_class
    for name in UNKNOWN:
        assert qdrant.match("POST", canonical(f"/{name}")) is None
    assert qdrant.match("GET", canonical("/qdrant.Points/Search")) is None


V = [1.0, 0.1]
DENSE = {"dense": {"data": V}}
NEAREST = {"nearest": DENSE}
STORED = {"nearest": {"id": {"num": 2}}}
POINT = STORED["nearest"]
EXAMPLE, EXAMPLE_POINT = {"vector": DENSE}, {"id": {"num": 2}}
IDS = [{"num": 1}]
UUID = "6f1f0f7e-0000-0000-0000-000000000000"
SHUT, SHUT_JSON = {"collection_name": "shut_docs"}, {"collection": "shut_docs"}
BY_ID = {"positive": 1, "lookup_from": SHUT_JSON}


def nested(times: int, query: Any = NEAREST) -> dict[str, Any]:
    part: dict[str, Any] = {"query": query, "lookup_from": SHUT}
    for _ in range(times):
        part = {"prefetch": [{"query": NEAREST}, part]}
    return part


def nested_json(times: int, query: Any = V) -> dict[str, Any]:
    part: dict[str, Any] = {"query": query, "lookup_from": SHUT_JSON}
    for _ in range(times):
        part = {"prefetch": [{"query": V}, part]}
    return part


def pairs(positive: Any, negative: Any) -> Any:
    return [{"positive": positive, "negative": negative}]


def context(positive: Any, negative: Any) -> Any:
    return {"pairs": pairs(positive, negative)}


def feedback(target: Any, example: Any) -> Any:
    return {"relevance_feedback": {"target": target, "feedback": [{"example": example}]}}


# A `Query`, and the same in JSON.
QUERIES: list[tuple[dict[str, Any], Any]] = [
    (NEAREST, V),
    (STORED, 2),
    ({"nearest": {"id": {"uuid": UUID}}}, UUID),
    ({"nearest_with_mmr": {"nearest": DENSE, "mmr": {}}}, {"nearest": V, "mmr": {}}),
    ({"nearest_with_mmr": {"nearest": POINT, "mmr": {}}}, {"nearest": 2, "mmr": {}}),
    ({"recommend": {"positive": [DENSE]}}, {"recommend": {"positive": [V]}}),
    ({"recommend": {"positive": [DENSE, POINT]}}, {"recommend": {"positive": [V, 2]}}),
    ({"recommend": {"negative": [POINT]}}, {"recommend": {"negative": [2]}}),
    ({"discover": {"target": POINT, "context": {}}}, {"discover": {"target": 2, "context": []}}),
    (
        {"discover": {"target": DENSE, "context": context(DENSE, DENSE)}},
        {"discover": {"target": V, "context": pairs(V, V)}},
    ),
    (
        {"discover": {"target": DENSE, "context": context(POINT, DENSE)}},
        {"discover": {"target": V, "context": pairs(2, V)}},
    ),
    ({"context": context(DENSE, DENSE)}, {"context": pairs(V, V)}),
    ({"context": context(DENSE, POINT)}, {"context": pairs(V, 2)}),
    (feedback(DENSE, DENSE), feedback(V, V)),
    (feedback(DENSE, POINT), feedback(V, 2)),
    (feedback(POINT, DENSE), feedback(2, V)),
    ({"fusion": 0}, {"fusion": "rrf"}),
    ({"order_by": {"key": "id"}}, {"order_by": "id"}),
]
# A call, by default about `docs`, and the same in JSON; the path has the collection of the call.
PAIRS: list[tuple[str, dict[str, Any], Any]] = [
    *(("Points/Query", {"query": query}, {"query": json}) for query, json in QUERIES),
    ("Points/Query", {"lookup_from": SHUT}, {"lookup_from": SHUT_JSON}),
    ("Points/Query", {"prefetch": [nested(3)]}, {"prefetch": [nested_json(3)]}),
    ("Points/Query", {"prefetch": [nested(2, STORED)]}, {"prefetch": nested_json(2, 2)}),
    (
        "Points/QueryBatch",
        {"query_points": [{"query": NEAREST}, {"prefetch": [nested(1)]}]},
        {"searches": [{"query": V}, {"prefetch": nested_json(1)}]},
    ),
    (
        "Points/QueryBatch",
        {"query_points": [{"query": NEAREST}, {"query": STORED}]},
        {"searches": [{"query": V}, {"query": 2}]},
    ),
    ("Points/QueryGroups", {"with_lookup": SHUT_JSON}, {"with_lookup": "shut_docs"}),
    (
        "Points/QueryGroups",
        {"query": STORED, "lookup_from": SHUT, "prefetch": [nested(0)]},
        {"query": 2, "lookup_from": SHUT_JSON, "prefetch": [nested_json(0)]},
    ),
    ("Points/Search", {"vector": V, "limit": 1}, {"vector": V, "limit": 1}),
    ("Points/SearchBatch", {"search_points": [{"vector": V}]}, {"searches": [{"vector": V}]}),
    (
        "Points/SearchGroups",
        {"vector": V, "with_lookup": {"collection": "open_alias"}},
        {"vector": V, "with_lookup": {"collection": "open_alias"}},
    ),
    ("Points/Recommend", {"positive": IDS, "lookup_from": SHUT}, {**BY_ID, "positive": [1]}),
    ("Points/Recommend", {"positive_vectors": [DENSE]}, {"positive": [V]}),
    (
        "Points/RecommendBatch",
        {"recommend_points": [{"negative": IDS, "lookup_from": SHUT}]},
        {"searches": [{"negative": [1], "lookup_from": SHUT_JSON}]},
    ),
    (
        "Points/RecommendGroups",
        {"positive": IDS, "with_lookup": SHUT_JSON},
        {"positive": [1], "with_lookup": SHUT_JSON},
    ),
    ("Points/Discover", {"target": {"single": EXAMPLE_POINT}}, {"target": 2}),
    (
        "Points/Discover",
        {"target": {"single": EXAMPLE}, "context": pairs(EXAMPLE, EXAMPLE_POINT)},
        {"target": V, "context": pairs(V, 2)},
    ),
    (
        "Points/DiscoverBatch",
        {"discover_points": [{"target": {"single": EXAMPLE}, "lookup_from": SHUT}]},
        {"searches": [{"target": V, "lookup_from": SHUT_JSON}]},
    ),
    ("Points/Scroll", {}, {}),
    ("Points/Get", {"ids": IDS}, {"ids": [1]}),
    ("Points/Count", {}, {}),
    ("Points/Facet", {"key": "a"}, {"key": "a"}),
    ("Points/SearchMatrixPairs", {}, {}),
    ("Points/Upsert", {"points": [{"id": IDS[0]}]}, None),
    ("Points/UpdateBatch", {"operations": [{"delete_points": {"points": {}}}]}, None),
    ("Collections/Get", {}, None),
    ("Collections/CollectionExists", {"collection_name": "open_alias"}, None),
    ("Collections/CollectionClusterInfo", {}, None),
    ("Collections/Create", {"collection_name": "open_new"}, {}),
    ("Collections/Delete", {"collection_name": "open_alias"}, None),
    ("Collections/List", {}, None),
    ("Qdrant/HealthCheck", {}, None),
]


def hinted(found: Found, qdrant: Qdrant) -> str | None:
    hint = found.route.hint_source
    source = None if hint is None else hint(qdrant, found.request)
    return None if source is None else source.source_id


@pytest.mark.parametrize("field", [None, "acl.level"], ids=["no levels", "levels"])
def test_a_call_and_its_twin_are_judged_alike(field: str | None) -> None:
    calls, requests = protocol(sensitivity_field=field), protocol(sensitivity_field=field)
    for name, values, body in PAIRS:
        method, path = TWINS[name]
        message = message_of(name, values)
        asked = getattr(message, "collection_name", "open_docs")
        call = judged_call(f"qdrant.{name}", message, calls)
        twin = judged_request(method, path.replace("open_docs", asked), body, requests)
        assert set(call.sources) == set(twin.sources), (name, body)
        assert call.route.route_class is twin.route.route_class, (name, body)
        # What isn't filtered is judged at `critical`.
        assert call.route.filters_documents == twin.route.filters_documents, (name, body)
        # A denied write is recorded under the same source.
        if call.route.route_class is RouteClass.WRITE:
            assert hinted(call, calls) == hinted(twin, requests) == call.sources[0], (name, body)
        # What is forwarded is the very message.
        assert call.route.message is not None
        data = call.request.body.data
        assert call.route.message.encode(call.request.body.values) == data
        assert type(message).FromString(data) == message


async def test_a_denied_write_is_recorded_under_the_collection_of_its_message(
    tmp_path: Path, server: Server
) -> None:
    message = message_of("Points/Upsert", {"collection_name": "open_docs"}).SerializeToString()
    fields = ("content-type", "application/grpc"), ("te", "trailers")
    # Nothing listens there: no call goes on.
    address = f"http://127.0.0.1:{free_port()}"
    async with minimal(tmp_path, "qdrant", scripted(server.answer), OPEN, grpc=address) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        client = Http2Client(reader, writer)
        for body, status in ((framed(message), b"7"), (framed(message)[:-1], b"3")):
            got = await client.ask(
                "/qdrant.Points/Upsert", *fields, method="POST", host="kb", body=body
            )
            assert got.fields[b"grpc-status"] == status
        writer.close()
        assert await front.sidecar.decisions() == [
            ("DENY", "write_denied", "qdrant://kb/open_docs"),
            ("DENY", "unreadable_request", "qdrant://kb"),
        ]
        assert front.lines == []


# Messages without a name where there should be one, or whose form could hide something.
MISSHAPEN: list[tuple[str, dict[str, Any] | bytes]] = [
    ("Points/Search", {"collection_name": "", "vector": V}),
    ("Points/Upsert", {"collection_name": ""}),
    ("Collections/Get", {"collection_name": ""}),
    ("Points/SearchBatch", {"collection_name": "", "search_points": [SHUT]}),
    ("Points/Query", {"lookup_from": {}}),
    ("Points/Query", {"prefetch": [{"lookup_from": {"vector_name": "v"}}]}),
    ("Points/SearchGroups", {"with_lookup": {}}),
    ("Points/Search", {"with_payload": {}}),
    ("Points/QueryGroups", {"with_lookup": {"collection": "docs", "with_payload": {}}}),
    ("Points/Query", {"prefetch": [nested(33)]}),
    ("Points/SearchBatch", {"search_points": [{}] * (MAX_PARTS + 1)}),
    # The name twice, an unknown field, one of another type, a name that isn't UTF-8, a torn field.
    ("Points/Count", b"\x0a\x04docs\x0a\x09shut_docs"),
    ("Points/Count", b"\x0a\x04docs\x3a\x01x"),
    ("Points/Count", b"\x08\x01"),
    ("Points/Count", b"\x0a\x02\xff\xfe"),
    ("Points/Count", b"\x0a\x05docs"),
    # A number that is too long, a `oneof` twice, and a message that readers would merge.
    ("Points/Count", b"\x8a\x00\x04docs"),
    ("Points/Get", b"\x0a\x04docs\x12\x04\x08\x01\x08\x02"),
    ("Points/Query", b"\x0a\x04docs\x72\x0b\x0a\x09shut_docs\x72\x0b\x0a\x09open_docs"),
    # An older Qdrant read field 13 as `init_from_collection`.
    ("Collections/Create", b"\x0a\x08open_new\x6a\x09shut_docs"),
    ("Collections/List", b"\x0a\x01x"),
    ("Qdrant/HealthCheck", b"\x0a\x01x"),
]


def test_a_message_that_two_readers_could_understand_differently_is_refused() -> None:
    qdrant = protocol()
    for name, values in MISSHAPEN:
        message = values if isinstance(values, bytes) else message_of(name, values)
        with pytest.raises(Malformed):
            pytest.fail(f"{name}: {judged_call(f'qdrant.{name}', message, qdrant)}")


def test_a_refused_call_is_left_to_the_proxy_to_render() -> None:
    qdrant, refusal = protocol(), RefusalResponse(403, "no", {})
    call = judged_call("qdrant.Points/Count", message_of("Points/Count", {}), qdrant).request
    fields = [(b"content-type", b"application/grpc")]
    assert qdrant.render_refusal(call._replace(fields=fields), refusal) is None
    assert qdrant.render_refusal(call, refusal) is not None
