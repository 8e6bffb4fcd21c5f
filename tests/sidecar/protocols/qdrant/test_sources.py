"""The collection in the path of a request to Qdrant is judged by what it stands for. Every trap of
`protocols/RULES.md`, Qdrant, is a test here, in `test_references.py` or in `test_filter.py`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models as m
from qdrant_client.http.exceptions import UnexpectedResponse

from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.qdrant.front import OPEN, QUERY, client
from tests.sidecar.protocols.qdrant.server import Server
from tests.support.proxy import policy


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


async def test_a_judged_request_is_forwarded_byte_for_byte(front: Minimal) -> None:
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


async def test_an_alias_is_judged_as_its_collection(front: Minimal) -> None:
    answered = await front.ask("POST", "/collections/open_alias/points/query", QUERY)
    denied(answered, "analysts-read")
    assert await front.sources() == [("DENY", "qdrant://kb/shut_docs")]
    assert front.lines == ["GET /aliases"]


async def test_an_alias_inside_a_body_is_judged_as_its_collection(front: Minimal) -> None:
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


async def test_a_failed_look_up_of_aliases_is_a_denial(tmp_path: Path) -> None:
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
