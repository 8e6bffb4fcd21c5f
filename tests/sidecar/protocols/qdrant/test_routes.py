"""A minimal Qdrant, executed by its own client library (`server.py`): the sources of a request,
whichever way it names them. Every trap of data-sources.md 5.2 is a test here or in
`test_filter.py`."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient
from qdrant_client import models as m
from qdrant_client.http.exceptions import UnexpectedResponse

from sidecar.http.request_target import canonical
from sidecar.protocols.qdrant.routes import ROUTES, Qdrant
from sidecar.protocols.route_table import RouteClass
from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.qdrant.server import Server
from tests.sidecar.proxy.proxy_setup import CLOCK, policy, source

OPEN = policy(allowed_sources=("qdrant://kb/open*",))
QUERY = {"query": [1.0, 0.1], "with_payload": True}


@pytest.fixture
def server() -> Server:
    made = Server()
    for name in ("open_docs", "open_more", "shut_docs"):
        made.create(name, "low", "high")
    made.alias("open_alias", "shut_docs")
    made.alias("docs", "open_docs")
    return made


@pytest.fixture
async def front(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "qdrant", scripted(server.answer), OPEN) as made:
        yield made


def client(port: int) -> QdrantClient:
    # Its check of the server's version runs in a thread that outlives a test.
    return QdrantClient(url=f"http://127.0.0.1:{port}", timeout=10, check_compatibility=False)


# what may be read


async def test_the_client_reads_through_the_listener_as_from_qdrant(front: Minimal) -> None:
    def read(port: int) -> list[Any]:
        qdrant = client(port)
        return [
            qdrant.query_points("open_docs", query=[1.0, 0.1], limit=1),
            qdrant.query_batch_points("open_docs", [m.QueryRequest(query=[1.0, 0.1])]),
            qdrant.query_points_groups("open_docs", group_by="author", query=[1.0, 0.1]),
            qdrant.query_points(
                "open_docs",
                prefetch=[m.Prefetch(query=[1.0, 0.1], limit=2)],
                query=m.FusionQuery(fusion=m.Fusion.RRF),
            ),
            qdrant.scroll("docs", limit=1),
            qdrant.retrieve("open_docs", [1, 2]),
            qdrant.count("open_docs"),
            qdrant.collection_exists("open_docs"),
        ]

    through = await asyncio.to_thread(read, front.port)
    assert through == await asyncio.to_thread(read, front.upstream.port)
    assert set(await front.sources()) == {("ALLOW", "qdrant://kb/open_docs")}


async def test_a_denied_collection_raises_with_the_reason(front: Minimal) -> None:
    def read() -> None:
        client(front.port).query_points("shut_docs", query=[1.0, 0.1])

    with pytest.raises(UnexpectedResponse, match="allowed_sources"):
        await asyncio.to_thread(read)
    assert await front.sources() == [("DENY", "qdrant://kb/shut_docs")]
    assert not any("shut_docs" in line for line in front.lines)


async def test_what_was_judged_is_forwarded_byte_for_byte(front: Minimal) -> None:
    raw = b'{ "query":[1.0,\n0.10],"with_payload" :true, "limit":1}'
    answered = await front.ask("POST", "/collections/open_docs/points/query", raw=raw)
    assert answered.status == 200
    assert front.upstream.seen[-1].body == raw


async def test_plain_names_and_levels_come_from_the_configuration(
    tmp_path: Path, server: Server
) -> None:
    names = {
        "qdrant://kb/open_docs": NamedSource("handbook", "low"),
        "qdrant://kb/shut_docs": NamedSource("contracts", "high"),
    }
    readers = policy(allowed_sources=("handbook", "contracts"), max_sensitivity="medium")
    async with minimal(tmp_path, "qdrant", scripted(server.answer), readers, names=names) as front:
        assert (await front.ask("POST", "/collections/docs/points/query", QUERY)).status == 200
        answered = await front.ask("POST", "/collections/open_alias/points/query", QUERY)
        denied(answered, "analysts-read")
        assert await front.sources() == [("ALLOW", "handbook"), ("DENY", "contracts")]


# aliases


async def test_an_alias_is_judged_by_what_it_stands_for(front: Minimal) -> None:
    answered = await front.ask("POST", "/collections/open_alias/points/query", QUERY)
    denied(answered, "analysts-read")
    assert await front.sources() == [("DENY", "qdrant://kb/shut_docs")]
    assert front.lines == ["GET /aliases"]


async def test_an_alias_inside_a_body_is_judged_by_what_it_stands_for(front: Minimal) -> None:
    body = {"query": 1, "lookup_from": {"collection": "open_alias"}}
    denied(
        await front.ask("POST", "/collections/open_docs/points/query", body), "analysts-read"
    )  # fmt: skip


async def test_aliases_are_fetched_once_in_thirty_seconds(front: Minimal) -> None:
    for _ in range(3):
        await front.ask("POST", "/collections/docs/points/query", QUERY)
    assert front.lines.count("GET /aliases") == 1
    front.ticking.ahead = 31
    await front.ask("POST", "/collections/docs/points/query", QUERY)
    assert front.lines.count("GET /aliases") == 2


async def test_an_alias_that_moved_is_judged_again_after_thirty_seconds(
    front: Minimal, server: Server
) -> None:
    assert (await front.ask("POST", "/collections/docs/points/query", QUERY)).status == 200
    server.alias("docs", "shut_docs")
    front.ticking.ahead = 31
    denied(await front.ask("POST", "/collections/docs/points/query", QUERY), "analysts-read")


async def test_aliases_fetched_with_one_credential_do_not_serve_another(front: Minimal) -> None:
    for key in ("narrow", "wide", "wide"):
        await front.ask("POST", "/collections/docs/points/query", QUERY, f"api-key: {key}")
    lookups = [seen for seen in front.upstream.seen if seen.target == "/aliases"]
    assert [seen.values("api-key") for seen in lookups] == [["narrow"], ["wide"]]


async def test_aliases_that_cannot_be_looked_up_deny(tmp_path: Path) -> None:
    def broken(method: str, path: str, raw: bytes) -> tuple[int, Any]:
        return (403, {}) if path == "/aliases" else (200, {})

    async with minimal(tmp_path, "qdrant", scripted(broken), OPEN) as front:
        answered = await front.ask("POST", "/collections/open_docs/points/query", QUERY)
        denied(answered, "unresolved_source")
        assert front.lines == ["GET /aliases"]


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {}},
        {"result": {"aliases": [{"alias_name": "a"}]}},
        [],
        {"result": {"aliases": 1}},
    ],
)
async def test_a_list_of_aliases_in_an_unknown_form_denies(tmp_path: Path, answer: Any) -> None:
    async with minimal(tmp_path, "qdrant", scripted(lambda *_: (200, answer)), OPEN) as front:
        answered = await front.ask("POST", "/collections/open_docs/points/query", QUERY)
        denied(answered, "unresolved_source")


async def test_a_write_that_changes_names_forgets_the_aliases(
    tmp_path: Path, server: Server
) -> None:
    async with minimal(tmp_path, "qdrant", scripted(server.answer), OPEN, writes="allow") as front:
        for method in ("GET", "DELETE", "GET"):
            await front.ask(method, "/collections/open_more")
        assert front.lines.count("GET /aliases") == 2


# collections inside a body

SHUT = {"collection": "shut_docs"}
DEEP = {"prefetch": [{"query": [1.0, 0.1]}, {"prefetch": {"query": 1, "lookup_from": SHUT}}]}
HIDDEN = [
    ("query", {"query": 1, "lookup_from": SHUT}),
    ("query", {"query": [1.0, 0.1], "prefetch": {"query": 1, "lookup_from": SHUT}}),
    ("query", {"query": [1.0, 0.1], "prefetch": [{"prefetch": [DEEP]}]}),
    ("query/batch", {"searches": [QUERY, {"query": 1, "lookup_from": SHUT}]}),
    ("query/batch", {"searches": [QUERY, DEEP]}),
    ("query/groups", {"query": [1.0, 0.1], "group_by": "author", "with_lookup": "shut_docs"}),
    ("query/groups", {"query": [1.0, 0.1], "group_by": "author", "with_lookup": SHUT}),
    ("query/groups", {"query": 1, "group_by": "author", "lookup_from": SHUT}),
    ("search/groups", {"vector": [1.0, 0.1], "group_by": "author", "with_lookup": "shut_docs"}),
    ("recommend", {"positive": [1], "limit": 1, "lookup_from": SHUT}),
    ("recommend/batch", {"searches": [{"positive": [1], "limit": 1, "lookup_from": SHUT}]}),
    ("recommend/groups", {"positive": [1], "group_by": "author", "with_lookup": SHUT}),
    ("discover", {"target": 1, "limit": 1, "lookup_from": SHUT}),
    ("discover/batch", {"searches": [{"target": 1, "limit": 1, "lookup_from": SHUT}]}),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "body"), HIDDEN)
async def test_a_collection_named_in_the_body_is_judged(
    front: Minimal, verb: str, body: object
) -> None:
    denied(
        await front.ask("POST", f"/collections/open_docs/points/{verb}", body), "analysts-read"
    )  # fmt: skip
    assert await front.sources() == [("DENY", "qdrant://kb/shut_docs")]
    assert front.lines == ["GET /aliases"]


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        # Qdrant accepts an array in place of an object.
        ("query", {"query": 1, "lookup_from": ["shut_docs"]}),
        ("query", {"query": 1, "prefetch": [["x", None, None, None, None, None, ["shut_docs"]]]}),
        ("query/groups", {"query": [1.0], "group_by": "a", "with_lookup": ["shut_docs"]}),
        ("query/batch", {"searches": [[["shut_docs"]]]}),
        ("query/batch", {"searches": {"lookup_from": SHUT}}),
        ("query", {"query": [1.0, 0.1], "filter": [None, None, []]}),
        ("query", {"query": 1, "lookup_from": {"collection": ["shut_docs"]}}),
        ("query", {"query": 1, "lookup_from": {}}),
        ("query", {"query": [1.0], "prefetch": "x"}),
        ("query", {"query": [1.0], "with_payload": {"include": [], "exclude": []}}),
        ("query", {"query": [1.0], "with_payload": [["acl"]]}),
    ],
)
async def test_a_member_of_an_unknown_form_is_refused(
    front: Minimal, verb: str, body: object
) -> None:
    answered = await front.ask("POST", f"/collections/open_docs/points/{verb}", body)
    denied(answered, "unreadable_request", 400)
    assert front.lines == []


async def test_prefetch_nested_beyond_reason_is_refused(front: Minimal) -> None:
    body: dict[str, Any] = {"query": [1.0, 0.1]}
    for _ in range(400):
        body = {"prefetch": body}
    answered = await front.ask("POST", "/collections/open_docs/points/query", body)
    denied(answered, "unreadable_request", 400)


async def test_a_member_that_occurs_twice_is_refused(front: Minimal) -> None:
    raw = b'{"query":1,"lookup_from":{"collection":"open_docs"},"lookup_from":null}'
    answered = await front.ask("POST", "/collections/open_docs/points/query", raw=raw)
    denied(answered, "unreadable_request", 400)


async def test_every_collection_named_is_recorded(front: Minimal) -> None:
    body = {"query": 1, "lookup_from": {"collection": "open_more"}}
    answered = await front.ask("POST", "/collections/docs/points/query", body)
    assert answered.status == 200
    assert sorted(await front.sources()) == [
        ("ALLOW", "qdrant://kb/open_docs"), ("ALLOW", "qdrant://kb/open_more"),
    ]  # fmt: skip


# names


async def test_lists_hold_what_may_be_seen(front: Minimal) -> None:
    def read() -> list[Any]:
        qdrant = client(front.port)
        return [qdrant.get_collections(), qdrant.get_aliases()]

    collections, aliases = await asyncio.to_thread(read)
    assert [each.name for each in collections.collections] == ["open_docs", "open_more"]
    assert [each.alias_name for each in aliases.aliases] == ["docs"]


async def test_a_list_that_may_be_seen_whole_is_qdrants_byte_for_byte(
    tmp_path: Path, server: Server
) -> None:
    async with minimal(tmp_path, "qdrant", scripted(server.answer)) as front:
        for target in ("/collections", "/aliases"):
            answered = await front.ask("GET", target)
            _, whole = server.answer("GET", target, b"")
            assert answered.body == json.dumps(whole).encode()


async def test_a_list_in_an_unknown_form_is_withheld(tmp_path: Path) -> None:
    strange = scripted(lambda *_: (200, {"result": {"collections": [1]}}))
    async with minimal(tmp_path, "qdrant", strange) as front:
        assert (await front.ask("GET", "/collections")).status == 502


async def test_what_reveals_no_source_passes_without_a_record(front: Minimal) -> None:
    assert (await front.ask("GET", "/")).json["version"] == "1.19.0"
    assert await front.sources() == []


# routes


def test_no_route_reads_without_naming_its_source() -> None:
    for route in ROUTES:
        listing = route.pattern in ("/collections", "/aliases")
        if (
            route.route_class in (RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE)
            and not listing
        ):
            assert route.find_sources is not None, route.pattern
        if route.route_class is RouteClass.WRITE:
            assert route.hint_source is not None, route.pattern
        if route.filters_documents:
            assert route.plan_forward is not None, route.pattern


@pytest.mark.parametrize(
    ("method", "path", "class_"),
    [
        ("POST", "/collections/aliases", RouteClass.ADMIN),
        ("GET", "/collections/aliases", RouteClass.METADATA),
        ("POST", "/collections/c/points", RouteClass.RETRIEVE),
        ("PUT", "/collections/c/points", RouteClass.WRITE),
        ("POST", "/collections/c/points/delete", RouteClass.WRITE),
        ("POST", "/collections/c/points/payload/clear", RouteClass.WRITE),
        ("GET", "/collections/c/points/1", RouteClass.RETRIEVE),
        ("POST", "/collections/c/facet", RouteClass.RETRIEVE),
        ("POST", "/collections/c/points/search/matrix/pairs", RouteClass.RETRIEVE),
        ("POST", "/collections/c/shards/0/points/scroll", RouteClass.RETRIEVE),
        ("GET", "/collections/c/snapshots/s", RouteClass.BULK),
        ("GET", "/snapshots/s", RouteClass.BULK),
        ("GET", "/collections/c/shards/0/snapshot", RouteClass.BULK),
        ("PUT", "/collections/c/snapshots/recover", RouteClass.BULK),
        ("GET", "/telemetry", RouteClass.ADMIN),
    ],
)
def test_routes_are_of_their_class(method: str, path: str, class_: RouteClass) -> None:
    match = Qdrant(source(1, "qdrant"), CLOCK.monotonic).match(method, canonical(path))
    assert match is not None
    assert match.route.route_class is class_


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("POST", "/collections/open_docs/points/teleport", "unclassified_route"),
        ("POST", "/collections/open_docs/points/query/", "unclassified_route"),
        ("POST", "/collections/aliases", "route_denied"),
        ("GET", "/collections/open_docs/snapshots/x", "route_denied"),
        ("GET", "/telemetry", "route_denied"),
        ("PUT", "/collections/open_docs/points", "write_denied"),
        ("POST", "/collections/open_docs/points/delete", "write_denied"),
    ],
)
async def test_what_is_closed_never_arrives(
    front: Minimal, method: str, target: str, name: str
) -> None:
    denied(await front.ask(method, target, {}), name)
    assert front.lines == []


async def test_a_collection_can_not_be_created_from_another(tmp_path: Path, server: Server) -> None:
    async with minimal(tmp_path, "qdrant", scripted(server.answer), OPEN, writes="allow") as front:
        body = {"vectors": {"size": 2, "distance": "Dot"}, "init_from": SHUT}
        denied(await front.ask("PUT", "/collections/open_copy", body), "route_denied")
        del body["init_from"]
        assert (await front.ask("PUT", "/collections/open_copy", body)).status == 200
        answered = await front.ask("PUT", "/collections/open_alias/points", {"points": []})
        denied(answered, "analysts-read")
