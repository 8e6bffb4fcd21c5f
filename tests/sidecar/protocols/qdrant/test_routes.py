"""The table of Qdrant's routes, what is closed, and its lists."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.protocol import RouteClass
from sidecar.protocols.qdrant.routes import ROUTES, Qdrant
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.qdrant.front import OPEN, SHUT, client
from tests.sidecar.protocols.qdrant.server import Server
from tests.support.proxy import CLOCK, source


def test_every_route_that_reads_names_its_source() -> None:
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
def test_each_route_has_its_class(method: str, path: str, class_: RouteClass) -> None:
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
async def test_a_closed_route_is_denied_and_not_forwarded(
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


async def test_lists_contain_only_visible_collections(front: Minimal) -> None:
    def read() -> list[Any]:
        qdrant = client(front.port)
        return [qdrant.get_collections(), qdrant.get_aliases()]

    collections, aliases = await asyncio.to_thread(read)
    assert [each.name for each in collections.collections] == ["open_docs", "open_more"]
    assert [each.alias_name for each in aliases.aliases] == ["docs"]


async def test_a_list_without_hidden_collections_is_qdrant_s_byte_for_byte(
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


async def test_a_request_that_reveals_no_source_passes_without_a_record(front: Minimal) -> None:
    assert (await front.ask("GET", "/")).json["version"] == "1.19.0"
    assert await front.sources() == []
