"""A minimal Pinecone (`server.py`): the namespaces of a request, whichever way it names them. With
its neighbours, every trap of `protocols/RULES.md`, Pinecone, is a test."""

import asyncio
from pathlib import Path
from typing import Any

import pinecone
import pytest

from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.pinecone.front import (
    DOCUMENTS,
    Q,
    index,
)
from tests.sidecar.protocols.pinecone.server import Server
from tests.support.proxy import policy


async def test_the_client_reads_through_the_listener_as_from_pinecone(front: Minimal) -> None:
    def read(port: int) -> list[Any]:
        made = index(port)
        text = pinecone.TextQuery(query="x", fields=["text"])
        return [
            made.query(vector=[1.0], top_k=3, namespace="open", include_metadata=True).matches,
            made.query(vector=[1.0], top_k=3).matches,
            made.fetch(ids=["1"], namespace="open").vectors,
            made.fetch_by_metadata(filter={"level": {"$eq": "low"}}, namespace="open").vectors,
            made.search(namespace="open", top_k=3, inputs={"text": "x"}).result.hits,
            [each.to_dict() for each in made.documents.search(
                namespace="open", top_k=3, score_by=[text], include_fields=["*"]).matches],
            made.documents.fetch(namespace="open", ids=["1"]).documents.keys(),
            made.describe_namespace(name="open").name,
        ]  # fmt: skip

    through = await asyncio.to_thread(read, front.port)
    assert through == await asyncio.to_thread(read, front.upstream.port)
    assert set(await front.sources()) == {
        ("ALLOW", "pinecone://kb/open"), ("ALLOW", "pinecone://kb/__default__"),
    }  # fmt: skip


async def test_a_denied_namespace_raises_with_the_reason(front: Minimal) -> None:
    def read() -> None:
        index(front.port).query(vector=[1.0], top_k=1, namespace="shut")

    with pytest.raises(Exception, match="`denied_sources`"):
        await asyncio.to_thread(read)
    assert await front.sources() == [("DENY", "pinecone://kb/shut")]
    assert front.lines == []


async def test_a_judged_request_is_forwarded_byte_for_byte(front: Minimal) -> None:
    raw = b'{ "vector":[1.0,\n0.10], "topK" :1 , "namespace":"open"}'
    assert (await front.ask("POST", "/query", raw=raw)).status == 200
    assert front.upstream.seen[-1].body == raw


async def test_plain_names_and_levels_come_from_the_configuration(tmp_path: Path) -> None:
    names = {
        "pinecone://kb/__default__": NamedSource("handbook", "low"),
        "pinecone://kb/shut": NamedSource("contracts", "high"),
    }
    readers = policy(allowed_sources=("handbook", "contracts"), max_sensitivity="medium")
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "pinecone", server, readers, names=names) as front:
        await front.ask("POST", "/query", Q)
        await front.ask("POST", "/query", {**Q, "namespace": "shut"})
        assert await front.sources() == [("ALLOW", "handbook"), ("DENY", "contracts")]


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/query", Q),
        ("POST", "/query", {**Q, "namespace": ""}),
        ("POST", "/query", {**Q, "namespace": None}),
        ("POST", "/query", {**Q, "namespace": "__default__"}),
        ("POST", "/vectors/fetch_by_metadata", {"filter": {"a": {"$eq": 1}}}),
        ("GET", "/vectors/fetch?ids=1", None),
        ("GET", "/vectors/fetch?ids=1&namespace=", None),
        ("GET", "/vectors/list?namespace=__default__", None),
        ("POST", "/records/namespaces/__default__/search", {"query": {"top_k": 1}}),
        ("POST", "/namespaces/__default__/documents/search", {"score_by": [], "top_k": 1}),
        ("GET", "/namespaces/__default__", None),
    ],
)
async def test_the_namespace_without_a_name_is_the_default_one(
    tmp_path: Path, method: str, target: str, body: Any
) -> None:
    shut = policy(denied_sources=("pinecone://kb/__default__",))
    async with minimal(tmp_path, "pinecone", scripted(Server("low").answer), shut) as front:
        denied(await front.ask(method, target, body), "analysts-read")
        assert await front.sources() == [("DENY", "pinecone://kb/__default__")]
        assert front.lines == []


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/query", {**Q, "namespace": "shut"}),
        ("POST", "/query", {**Q, "queries": [{"values": [1.0], "namespace": "shut"}]}),
        ("POST", "/query", {**Q, "namespace": "shut", "queries": [{"namespace": "open"}]}),
        ("GET", "/vectors/fetch?ids=1&namespace=shut", None),
        ("GET", "/vectors/fetch?ids=1&n%61mespace=sh%75t", None),
        ("GET", "/vectors/list?namespace=shut", None),
        ("POST", "/vectors/fetch_by_metadata", {"namespace": "shut", "filter": {}}),
        ("POST", "/records/namespaces/shut/search", {"query": {"top_k": 1}}),
        ("POST", "/records/namespaces/sh%75t/search", {"query": {"top_k": 1}}),
        ("POST", "/namespaces/shut/documents/fetch", {"ids": ["1"]}),
        ("POST", "/namespaces/shut/documents/list", {}),
        ("GET", "/namespaces/shut", None),
    ],
)
async def test_a_namespace_is_judged_wherever_it_appears(
    front: Minimal, method: str, target: str, body: Any
) -> None:
    denied(await front.ask(method, target, body), "analysts-read")
    assert await front.sources() == [("DENY", "pinecone://kb/shut")]
    assert front.lines == []


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/query", {**Q, "namespace": ["shut"]}),
        ("POST", "/query", {**Q, "Namespace": "shut"}),
        ("POST", "/query", {**Q, "include_metadata": True}),
        ("POST", "/query", {**Q, "filter": "x"}),
        ("POST", "/query", {**Q, "queries": {"namespace": "shut"}}),
        ("POST", "/query", {**Q, "queries": ["shut"]}),
        ("GET", "/vectors/fetch?ids=1&namespace=open&namespace=shut", None),
        ("GET", "/vectors/fetch?ids=1&Namespace=shut", None),
        ("GET", "/vectors/list?pagination_token=x", None),
        ("GET", "/vectors/fetch?ids=1;namespace=shut", None),
        ("GET", "/vectors/fetch?ids=1&namespace%20=shut", None),
        ("POST", "/records/namespaces/open/search", {"query": []}),
        ("POST", "/records/namespaces/open/search", {"query": {"Filter": {}}}),
        ("POST", f"{DOCUMENTS}/search", {"include_fields": "text"}),
        ("POST", f"{DOCUMENTS}/fetch", {"includeFields": ["text"]}),
        ("POST", f"{DOCUMENTS}/fetch", {"pagination_token": 7}),
    ],
)
async def test_an_ambiguous_request_is_refused(
    front: Minimal, method: str, target: str, body: Any
) -> None:
    denied(await front.ask(method, target, body), "unreadable_request", 400)
    assert front.lines == []


async def test_every_namespace_of_a_query_is_recorded(front: Minimal) -> None:
    queries = [{"values": [1.0], "namespace": "open"}, {"values": [1.0]}]
    assert (await front.ask("POST", "/query", {"queries": queries, "topK": 1})).status == 200
    assert sorted(await front.sources()) == [
        ("ALLOW", "pinecone://kb/__default__"), ("ALLOW", "pinecone://kb/open"),
    ]  # fmt: skip


async def test_a_page_token_is_valid_for_its_user(front: Minimal) -> None:
    target = "/vectors/list?namespace=open"
    denied(await front.ask("GET", f"{target}&paginationToken=more"), "unresolved_source")
    assert (await front.ask("GET", target)).status == 200
    assert (await front.ask("GET", f"{target}&paginationToken=more")).status == 200
    other = await front.ask("GET", f"{target}&paginationToken=more", None, "X-Sluice-User: bob")
    denied(other, "unresolved_source")


async def test_a_page_is_judged_by_the_sources_of_its_token(tmp_path: Path) -> None:
    server = scripted(Server("low").answer)
    raised = policy(max_sensitivity="medium")
    async with minimal(
        tmp_path, "pinecone", server, raised,
        names={"pinecone://kb/open": NamedSource("open", "medium")}, sensitivity="low",
    ) as front:  # fmt: skip
        body = {"filter": {"text": {"$eq": "x"}}, "namespace": "open"}
        assert (await front.ask("POST", "/vectors/fetch_by_metadata", body)).status == 200
        body = {"filter": {}, "paginationToken": "page"}
        assert (await front.ask("POST", "/vectors/fetch_by_metadata", body)).status == 200
        assert [each[1] for each in await front.sources()][1:] in (
            ["open", "pinecone://kb/__default__"], ["pinecone://kb/__default__", "open"],
        )  # fmt: skip


async def test_lists_contain_only_visible_namespaces(front: Minimal) -> None:
    answered = await front.ask("GET", "/namespaces")
    assert [each["name"] for each in answered.json["namespaces"]] == ["__default__", "open"]
    assert "total_count" not in answered.json
    for method in ("GET", "POST"):
        body: Any = {} if method == "POST" else None
        counts = (await front.ask(method, "/describe_index_stats", body)).json
        assert counts["namespaces"].keys() == {"__default__", "open"}
        assert counts["totalVectorCount"] == 2
    assert await front.sources() == []


async def test_the_client_s_lists_contain_only_visible_namespaces(front: Minimal) -> None:
    def read() -> list[Any]:
        made = index(front.port)
        return [made.describe_index_stats(), made.list_namespaces_paginated()]

    stats, page = await asyncio.to_thread(read)
    assert set(stats.namespaces) == {"__default__", "open"}
    assert (stats.total_vector_count, stats.memory_fullness) == (2, None)
    assert [each.name for each in page.namespaces] == ["__default__", "open"]


async def test_counts_by_a_filter_are_denied(front: Minimal) -> None:
    body = {"filter": {"level": {"$eq": "low"}}}
    denied(await front.ask("POST", "/describe_index_stats", body), "unresolved_source")
    answered = await front.ask("GET", "/describe_index_stats?filter=%7B%22a%22%3A1%7D")
    denied(answered, "unresolved_source")
