"""A minimal Milvus behind the sidecar: aliases, lists, writes, and what is closed."""

import json
from pathlib import Path
from typing import Any

from sidecar.http.request_target import canonical
from sidecar.protocols.milvus.routes import ROUTES, Milvus
from sidecar.protocols.protocol import ALWAYS_DENIED, RouteClass
from tests.sidecar.protocols.milvus.front import HYBRID, LOOKUP, OPEN, QUERY, SEARCH, q
from tests.sidecar.protocols.milvus.server import Server
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.support.proxy import CLOCK, policy, source

V2 = "/v2/vectordb"


async def test_a_search_is_judged_by_the_collection_behind_its_name(front: Minimal) -> None:
    raw = json.dumps(q("docs"), indent=1).encode()
    answered = await front.ask("POST", SEARCH, None, "DB-Name: default", raw=raw)
    assert answered.status == 200, answered.raw
    assert b"id" in answered.body
    # Forwarded byte for byte, with the agent's own field.
    assert front.upstream.seen[-1].body == raw
    looked = front.upstream.seen[0]
    assert (f"{looked.line}", json.loads(looked.body)) == (
        f"{LOOKUP} HTTP/1.1", {"dbName": "default", "aliasName": "docs"},
    )  # fmt: skip
    for name in ("open_alias", "shut_docs"):
        denied(await front.ask("POST", SEARCH, q(name)), "analysts-read")
    inner = q(search=[q(), q("open_alias")])
    denied(await front.ask("POST", HYBRID, inner), "analysts-read")
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


async def test_names_are_cached_for_half_a_minute(front: Minimal) -> None:
    for ahead, looked in ((0, 1), (0, 1), (31, 2)):
        front.ticking.ahead = ahead
        assert (await front.ask("POST", SEARCH, q("docs"))).status == 200
        assert front.lines.count(LOOKUP) == looked
    await front.ask("POST", SEARCH, q("docs"), "Authorization: Bearer other:one")
    assert front.lines.count(LOOKUP) == 3


async def test_lists_show_visible_names_only(tmp_path: Path) -> None:
    readers = policy(
        denied_sources=(
            "milvus://kb/other", "milvus://kb/default/shut_docs",
            "milvus://kb/default/open_docs/theirs",
        )
    )  # fmt: skip
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "milvus", server, readers) as front:

        async def listed(path: str, **body: Any) -> Any:
            return (await front.ask("POST", f"{V2}/{path}/list", body)).json["data"]

        assert await listed("databases") == ["default"]
        assert await listed("collections") == ["open_docs"]
        assert await listed("collections", dbName="other") == ["open_docs"]
        assert await listed("partitions", collectionName="docs") == ["_default", "ours"]
        assert await listed("aliases", collectionName="open_docs") == ["docs"]
        denied(await front.ask("POST", f"{V2}/aliases/list", {}), "unresolved_source")


async def test_a_change_of_names_is_seen_at_once(tmp_path: Path) -> None:
    server = Server("low")
    async with minimal(tmp_path, "milvus", scripted(server.answer), OPEN, writes="allow") as front:
        assert (await front.ask("POST", SEARCH, q("docs"))).status == 200
        body = {"collectionName": "docs", "newCollectionName": "open_more"}
        server.aliases["default", "docs"] = "shut_docs"
        assert (await front.ask("POST", f"{V2}/collections/rename", body)).status == 200
        denied(await front.ask("POST", SEARCH, q("docs")), "analysts-read")


WRITES: list[tuple[str, dict[str, Any], str]] = [
    ("entities/insert", {"data": []}, "shut_docs"),
    ("entities/upsert", {"data": [], "partitionName": "ours"}, "shut_docs/ours"),
    ("entities/delete", {"filter": "id > 0"}, "shut_docs"),
    ("collections/create", {"dimension": 2}, "shut_docs"),
    ("collections/drop", {}, "shut_docs"),
    ("collections/rename", {"newCollectionName": "open_b"}, "shut_docs"),
    ("partitions/release", {"partitionNames": ["ours"]}, "shut_docs/ours"),
    ("indexes/create", {"indexParams": []}, "shut_docs"),
]
CLOSED: list[tuple[str, dict[str, Any], str]] = [
    ("aliases/alter", {"aliasName": "a"}, "route_denied"),
    ("jobs/import/create", {}, "route_denied"),
    ("users/create", {}, "route_denied"),
    ("segments/describe", {"collectionID": 1}, "route_denied"),
    ("collections/create", {"externalSource": "s3://x"}, "route_denied"),
    ("collections/create", {"schema": {"ExternalSpec": ""}}, "route_denied"),
    ("entities/search/", {}, "unclassified_route"),
    ("entities/search_more", {}, "unclassified_route"),
]


async def test_writes_are_judged_by_their_collection(tmp_path: Path) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "milvus", server, OPEN, writes="allow") as front:
        for path, more, expected in WRITES:
            body = {"collectionName": "shut_docs", **more}
            denied(await front.ask("POST", f"{V2}/{path}", body), "analysts-read")
            assert (await front.sources())[-1] == ("DENY", f"milvus://kb/default/{expected}")


async def test_a_closed_route_is_denied_and_not_forwarded(tmp_path: Path) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "milvus", server, OPEN, writes="allow") as front:
        for path, more, name in CLOSED:
            body = {"collectionName": "open_docs", **more}
            denied(await front.ask("POST", f"{V2}/{path}", body), name)
        assert front.lines == []


def test_every_route_that_reads_names_its_source() -> None:
    for route in ROUTES:
        assert (route.find_sources is None) is (route.route_class in ALWAYS_DENIED), route.pattern
        assert (route.parse_body is None) is (route.find_sources is None), route.pattern
        assert route.filters_documents is (route.route_class is RouteClass.RETRIEVE), route.pattern


def test_each_route_has_its_class() -> None:
    protocol = Milvus(source(1, "milvus"), CLOCK.monotonic)
    for path, class_ in (
        ("entities/hybrid_search", RouteClass.RETRIEVE),
        ("entities/upsert", RouteClass.WRITE),
        ("collections/load", RouteClass.METADATA),
        ("collections/release", RouteClass.WRITE),
        ("roles/grant_privilege_v2", RouteClass.ADMIN),
        ("snapshots/create", RouteClass.BULK),
    ):
        match = protocol.match("POST", canonical(f"{V2}/{path}"))
        assert match is not None
        assert match.route.route_class is class_
        assert protocol.match("GET", canonical(f"{V2}/{path}")) is None
