"""A minimal Milvus behind the sidecar: aliases, lists, and what is closed."""

import json
from typing import Any

from sidecar.protocols.milvus.grpc_schema import REQUESTS
from sidecar.protocols.milvus.routes import ROUTES
from sidecar.protocols.milvus.sources import SERVICE
from sidecar.protocols.protocol import ALWAYS_DENIED, GrpcMessage, RouteClass
from tests.sidecar.protocols.milvus.front import HYBRID, LOOKUP, QUERY, SEARCH, V2, q
from tests.sidecar.protocols.milvus.server import Server
from tests.sidecar.protocols.milvus.wires import Table, class_of
from tests.sidecar.protocols.minimal import Minimal, denied


async def test_a_request_is_judged_by_the_collection_behind_its_name(front: Minimal) -> None:
    raw = json.dumps(q("docs"), indent=1).encode()
    answered = await front.ask("POST", SEARCH, None, "DB-Name: default", raw=raw)
    assert answered.status == 200, answered.raw
    # Forwarded byte for byte.
    assert front.upstream.seen[-1].body == raw
    looked = front.upstream.seen[0]
    assert looked.line == f"{LOOKUP} HTTP/1.1"
    assert json.loads(looked.body) == {"dbName": "default", "aliasName": "docs"}
    for name in ("open_alias", "shut_docs"):
        answered = await front.ask("POST", SEARCH, q(name))
        denied(answered, "analysts-read")
        # The form of Milvus' own errors.
        assert answered.json["code"] == 1401
        assert answered.json["message"].endswith(f"(event {answered.json['decision']['event_id']})")
    denied(await front.ask("POST", HYBRID, q(search=[q(), q("open_alias")])), "analysts-read")
    denied(await front.ask("POST", SEARCH, q(dbName="other")), "analysts-read")
    twice = b'{"collectionName": "open_docs", "collectionName": "shut_docs"}'
    denied(await front.ask("POST", QUERY, raw=twice), "unreadable_request", 400)
    assert front.lines.count(f"POST {SEARCH}") == 1
    assert await front.sources() == [
        ("ALLOW", "milvus://kb/default/open_docs"),
        *[("DENY", "milvus://kb/default/shut_docs")] * 3,
        ("DENY", "milvus://kb/other/open_docs"),
        ("DENY", "milvus://kb"),
    ]
    # A name is looked up once in half a minute, for each credential.
    looked_up = front.lines.count(LOOKUP)
    for ahead, more, fields in (
        (0, 0, ()), (31, 1, ()), (31, 1, ()), (31, 2, ("Authorization: Bearer other:one",)),
    ):  # fmt: skip
        front.ticking.ahead = ahead
        assert (await front.ask("POST", SEARCH, q("docs"), *fields)).status == 200
        assert front.lines.count(LOOKUP) == looked_up + more

    async def listed(path: str, **body: Any) -> Any:
        return (await front.ask("POST", f"{V2}/{path}/list", body)).json["data"]

    # Lists show visible names only.
    assert await listed("databases") == ["default"]
    assert await listed("collections") == ["open_docs"]
    assert await listed("collections", dbName="other") == []
    assert await listed("partitions", collectionName="docs") == ["_default", "ours"]
    assert await listed("aliases", collectionName="open_docs") == ["docs"]
    denied(await front.ask("POST", f"{V2}/aliases/list", {}), "unresolved_source")


CLOSED: dict[str, RouteClass | None] = {
    "aliases/alter": RouteClass.ADMIN,
    "users/create": RouteClass.ADMIN,
    "segments/describe": RouteClass.ADMIN,
    "jobs/import/create": RouteClass.BULK,
    "snapshots/create": RouteClass.BULK,
    "entities/search/": None,
    "entities/search_more": None,
}


def test_what_copies_or_points_names_elsewhere_is_closed() -> None:
    for path, expected in CLOSED.items():
        assert class_of(f"{V2}/{path}") is expected, path
    for method in ("CreateAlias", "DumpMessages", "CreateSnapshot", "CalcDistance", "RunAnalyzer"):
        assert class_of(f"{SERVICE}/{method}") in ALWAYS_DENIED, method
    for path in (
        f"{SERVICE}/Searching", "/milvus.proto.milvus.ProxyService/RegisterLink",
        "/milvus.proto.milvus.ClientTelemetryService/ClientHeartbeat",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ):  # fmt: skip
        assert class_of(path) is None, path


def test_a_collection_over_other_storage_is_a_copy() -> None:
    for body, expected in (
        ({"schema": {"fields": []}}, RouteClass.WRITE),
        ({"externalSource": "s3://x"}, RouteClass.BULK),
        ({"schema": {"ExternalSpec": ""}}, RouteClass.BULK),
    ):  # fmt: skip
        assert refined(f"{V2}/collections/create", body) is expected, body
    for schema, expected in (
        ({"name": "open_docs"}, RouteClass.WRITE), ({"external_source": "s3://x"}, RouteClass.BULK),
    ):  # fmt: skip
        values = {"schema": REQUESTS["CollectionSchema"].encode(schema)}
        assert refined(f"{SERVICE}/CreateCollection", GrpcMessage(values, b"")) is expected, schema


def refined(path: str, body: Any) -> RouteClass:
    table = Table()
    route, request = table.routed(path, body)
    assert route.refine is not None
    found = route.refine(table.milvus, request)
    assert found is not None
    return found.route_class


async def test_a_denied_write_is_recorded_under_what_it_names() -> None:
    table = Table()
    for values, expected in (
        ({"collection_name": "docs"}, "milvus://kb/default/docs"),
        ({"collection_name": "docs", "partition_name": "ours"}, "milvus://kb/default/docs/ours"),
        ({}, None),
    ):  # fmt: skip
        body = {"".join(name.title().split("_")): named for name, named in values.items()}
        body = {name[0].lower() + name[1:]: named for name, named in body.items()}
        for path, read in (
            (f"{SERVICE}/Insert", GrpcMessage(values, b"")), (f"{V2}/entities/insert", body),
        ):  # fmt: skip
            route, request = table.routed(path, read)
            assert route.hint_source is not None
            hint = route.hint_source(table.milvus, request)
            assert (None if hint is None else hint.source_id) == expected, path
            assert table.looked == []
    # A name that was looked up is recorded under its collection.
    await table.grpc("Insert", {"collection_name": "docs"})
    route, request = table.routed(
        f"{SERVICE}/Insert", GrpcMessage({"collection_name": "docs"}, b"")
    )
    assert route.hint_source is not None
    hint = route.hint_source(table.milvus, request)
    assert hint is not None
    assert hint.source_id == "milvus://kb/default/open_docs"
    for each in ROUTES:
        written = each.route_class is RouteClass.WRITE
        assert (each.hint_source is not None) is each.hint_in_body is written, each.pattern


async def test_a_change_of_names_is_seen_at_once() -> None:
    body = {"collectionName": "docs"}
    for path in (
        f"{V2}/collections/rename", f"{V2}/collections/drop", f"{V2}/collections/create",
        f"{SERVICE}/RenameCollection", f"{SERVICE}/DropCollection", f"{SERVICE}/CreateCollection",
    ):  # fmt: skip
        server = Server("low")
        table = Table(server.answer)
        assert await table.rest("entities/search", body) == ["default/open_docs"]
        server.aliases["default", "docs"] = "shut_docs"
        assert await table.rest("entities/search", body) == ["default/open_docs"]
        route, _ = table.routed(path, body)
        assert route.before_forward is not None
        assert route.after_forward is not None
        route.before_forward(table.milvus)
        assert await table.rest("entities/search", body) == ["default/shut_docs"], path


def test_every_route_that_reads_names_its_source() -> None:
    for route in ROUTES:
        closed = route.route_class in (*ALWAYS_DENIED, RouteClass.OPEN)
        assert (route.find_sources is None) is closed, route.pattern
        assert route.reads_body is not closed, route.pattern
        assert route.filters_documents is (route.route_class is RouteClass.RETRIEVE), route.pattern
