"""A minimal Pinecone (`server.py`): the namespaces of a request, whichever way it names them, and
which records may be seen. Every trap of data-sources.md 5.5 is a test here."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pinecone
import pytest

from sidecar.http.request_target import canonical
from sidecar.protocols.pinecone.routes import ROUTES, Pinecone
from sidecar.protocols.route_table import RouteClass
from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.pinecone.server import Server
from tests.sidecar.proxy.proxy_setup import CLOCK, policy, source

OPEN = policy(denied_sources=("pinecone://kb/shut", "pinecone://kb/*/shut"))
READERS = policy(max_sensitivity="medium")
MARKED = {"sensitivity_field": "level", "sensitivity": "low"}
LEVELS = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
MINE = {"level": {"$in": ["low", "medium"]}}
Q = {"vector": [1.0, 0.1], "topK": 10}
DOCUMENTS = "/namespaces/open/documents"


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    async with minimal(tmp_path, "pinecone", scripted(Server("low").answer), OPEN) as made:
        yield made


@pytest.fixture
async def marked(tmp_path: Path) -> AsyncIterator[Minimal]:
    server = scripted(Server(*LEVELS).answer)
    async with minimal(tmp_path, "pinecone", server, READERS, **MARKED) as made:
        yield made


def index(port: int) -> Any:
    return pinecone.Pinecone(api_key="key").Index(host=f"http://127.0.0.1:{port}")


# what may be read


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


async def test_what_was_judged_is_forwarded_byte_for_byte(front: Minimal) -> None:
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


# namespaces


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
async def test_a_namespace_is_judged_wherever_it_is_named(
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


# pages


async def test_a_page_token_works_for_the_user_it_was_issued_to(front: Minimal) -> None:
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


# names


async def test_lists_hold_what_may_be_seen(front: Minimal) -> None:
    answered = await front.ask("GET", "/namespaces")
    assert [each["name"] for each in answered.json["namespaces"]] == ["__default__", "open"]
    assert "total_count" not in answered.json
    for method in ("GET", "POST"):
        body: Any = {} if method == "POST" else None
        counts = (await front.ask(method, "/describe_index_stats", body)).json
        assert counts["namespaces"].keys() == {"__default__", "open"}
        assert counts["totalVectorCount"] == 2
    assert await front.sources() == []


async def test_the_clients_lists_hold_what_may_be_seen(front: Minimal) -> None:
    def read() -> list[Any]:
        made = index(front.port)
        return [made.describe_index_stats().namespaces.keys(), made.list_namespaces_paginated()]

    counts, page = await asyncio.to_thread(read)
    assert set(counts) == {"__default__", "open"}
    assert [each.name for each in page.namespaces] == ["__default__", "open"]


async def test_counts_by_a_filter_are_denied(front: Minimal) -> None:
    body = {"filter": {"level": {"$eq": "low"}}}
    denied(await front.ask("POST", "/describe_index_stats", body), "unresolved_source")
    answered = await front.ask("GET", "/describe_index_stats?filter=%7B%22a%22%3A1%7D")
    denied(answered, "unresolved_source")


# records


@pytest.mark.parametrize("wanted", [True, False, None])
async def test_a_query_returns_the_records_that_may_be_seen(
    marked: Minimal, wanted: bool | None
) -> None:
    theirs = {"text": {"$eq": "text of open 1"}}
    body: dict[str, Any] = {**Q, "namespace": "open"} | (
        {} if wanted is None else {"includeMetadata": wanted}
    )
    matches = (await marked.ask("POST", "/query", body)).json["matches"]
    assert [each["id"] for each in matches] == ["1", "3"]
    assert all(("metadata" in each) == bool(wanted) for each in matches)
    assert marked.last["filter"] == MINE
    await marked.ask("POST", "/query", {**body, "filter": theirs})
    assert marked.last["filter"] == {"$and": [MINE, theirs]}
    [first, _] = await marked.sidecar.lineage(2)
    assert first["detail"]["withheld"] == 1


async def test_a_fetch_returns_the_records_that_may_be_seen(marked: Minimal) -> None:
    ids = "&".join(f"ids={n}" for n in range(1, 8))
    answered = await marked.ask("GET", f"/vectors/fetch?{ids}&namespace=open")
    assert answered.json["vectors"].keys() == {"1", "3"}
    body = {"namespace": "open", "filter": {"text": {"$eq": "text of open 6"}}}
    answered = await marked.ask("POST", "/vectors/fetch_by_metadata", body)
    assert answered.json["vectors"] == {}
    assert marked.last["filter"] == {"$and": [MINE, body["filter"]]}


@pytest.mark.parametrize(
    ("fields", "keys"),
    [(None, {"text", "level"}), (["text"], {"text"}), ([], set()), (["level"], {"level"})],
)
async def test_a_search_of_records_returns_those_that_may_be_seen(
    marked: Minimal, fields: Any, keys: set[str]
) -> None:
    body = {"query": {"top_k": 9, "inputs": {"text": "x"}}}
    body |= {} if fields is None else {"fields": fields}
    answered = await marked.ask("POST", "/records/namespaces/open/search", body)
    hits = answered.json["result"]["hits"]
    assert [each["_id"] for each in hits] == ["1", "3"]
    assert all(each["fields"].keys() == keys for each in hits)
    assert marked.last["query"]["filter"] == MINE


@pytest.mark.parametrize(
    ("fields", "keys"),
    [(None, set()), (["*"], {"text", "level"}), (["text"], {"text"}), ([], set())],
)
async def test_a_search_of_documents_returns_those_that_may_be_seen(
    marked: Minimal, fields: Any, keys: set[str]
) -> None:
    body = {"top_k": 9, "score_by": [{"type": "text", "query": "x", "fields": ["text"]}]}
    body |= {} if fields is None else {"include_fields": fields}
    answered = await marked.ask("POST", f"{DOCUMENTS}/search", body)
    matches = answered.json["matches"]
    assert [each["_id"] for each in matches] == ["1", "3"]
    assert all(each.keys() == keys | {"_id", "_score"} for each in matches)


@pytest.mark.parametrize(
    ("body", "seen", "keys"),
    [
        ({"ids": ["1", "2", "6"]}, {"1"}, {"text", "level"}),
        ({"ids": ["1", "2"], "include_fields": ["text"]}, {"1"}, {"text"}),
        ({"ids": ["3"], "include_fields": ["*"]}, {"3"}, {"text", "level"}),
        ({"filter": {"text": {"$in": ["text of open 3", "text of open 7"]}}}, {"3"},
         {"text", "level"}),
    ],
)  # fmt: skip
async def test_a_fetch_of_documents_returns_those_that_may_be_seen(
    marked: Minimal, body: Any, seen: set[str], keys: set[str]
) -> None:
    documents = (await marked.ask("POST", f"{DOCUMENTS}/fetch", body)).json["documents"]
    assert documents.keys() == seen
    assert all(each.keys() == keys | {"_id"} for each in documents.values())


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/query", {"id": "2", "topK": 1}),
        ("POST", "/query", {"queries": [{"values": [1.0]}], "topK": 1}),
        ("POST", "/records/namespaces/open/search", {"query": {"id": "2", "top_k": 1}}),
        ("POST", f"{DOCUMENTS}/search", {"top_k": 1, "score_by": [{"type": "like", "id": "2"}]}),
        ("POST", f"{DOCUMENTS}/list", {}),
        ("GET", "/vectors/list?namespace=open", None),
        ("POST", "/assistant/chat/helper", {"messages": []}),
    ],
)
async def test_what_can_not_be_checked_is_judged_at_critical(
    marked: Minimal, method: str, target: str, body: Any
) -> None:
    denied(await marked.ask(method, target, body), "analysts-read")
    assert marked.lines == []


async def test_an_agent_that_may_see_everything_gets_the_response_unchanged(tmp_path: Path) -> None:
    server = Server(*LEVELS)
    everyone = policy(max_sensitivity="critical")
    async with minimal(tmp_path, "pinecone", scripted(server.answer), everyone, **MARKED) as front:
        answered = await front.ask("POST", "/query", Q)
        assert len(answered.json["matches"]) == len(LEVELS)
        assert front.last == Q


@pytest.mark.parametrize(
    "answer",
    [
        [], {"matches": {}}, {"matches": [1]}, {"matches": [], "results": [{"matches": []}]},
        {"matches": [], "hits": [{"id": 1}]}, {"matches": [], "vectors": {"1": {}}},
    ],
)  # fmt: skip
async def test_a_response_in_an_unknown_form_is_withheld(tmp_path: Path, answer: Any) -> None:
    async with minimal(
        tmp_path, "pinecone", scripted(lambda *_: (200, answer)), READERS, **MARKED
    ) as front:
        assert (await front.ask("POST", "/query", Q)).status == 502


async def test_the_client_sees_only_what_it_may(marked: Minimal) -> None:
    def read() -> list[list[str]]:
        made = index(marked.port)
        return [
            [each.id for each in made.query(vector=[1.0], top_k=9, namespace="open").matches],
            list(made.fetch(ids=["1", "2", "3"], namespace="open").vectors),
            [each.id for each in made.search(
                namespace="open", top_k=9, inputs={"text": "x"}).result.hits],
        ]  # fmt: skip

    assert await asyncio.to_thread(read) == [["1", "3"]] * 3


# writes and routes


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("POST", "/vectors/upsert", {"vectors": [], "namespace": "shut"}, "shut"),
        ("POST", "/vectors/delete", {"deleteAll": True, "namespace": "shut"}, "shut"),
        ("POST", "/vectors/update", {"id": "1", "namespace": "shut"}, "shut"),
        ("POST", "/records/namespaces/shut/upsert", {"_id": "1"}, "shut"),
        ("POST", "/namespaces/shut/documents/delete", {"ids": ["1"]}, "shut"),
        ("POST", "/namespaces", {"name": "shut"}, "shut"),
        ("DELETE", "/namespaces/shut", None, "shut"),
        ("DELETE", "/assistant/files/shut/1", None, "assistant/shut"),
    ],
)
async def test_writes_are_judged_by_their_namespace(
    tmp_path: Path, method: str, target: str, body: Any, expected: str
) -> None:
    server = scripted(Server("low").answer)
    async with minimal(tmp_path, "pinecone", server, OPEN, writes="allow") as front:
        denied(await front.ask(method, target, body), "analysts-read")
        assert await front.sources() == [("DENY", f"pinecone://kb/{expected}")]


async def test_an_assistant_is_a_source_of_its_own(front: Minimal) -> None:
    for verb in ("", "/context", "/chat/completions"):
        assert (await front.ask("POST", f"/assistant/chat/helper{verb}", {})).status == 200
        denied(await front.ask("POST", f"/assistant/chat/shut{verb}", {}), "analysts-read")
    assert set(await front.sources()) == {
        ("ALLOW", "pinecone://kb/assistant/helper"), ("DENY", "pinecone://kb/assistant/shut"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("POST", "/bulk/imports", "route_denied"),
        ("GET", "/bulk/imports/1", "route_denied"),
        ("GET", "/assistant/assistants", "route_denied"),
        ("POST", "/vectors/upsert", "write_denied"),
        ("POST", "/query/", "unclassified_route"),
        ("POST", "/records/namespaces//search", "unreadable_request"),
        ("GET", "/indexes", "unclassified_route"),
    ],
)
async def test_what_is_closed_never_arrives(
    front: Minimal, method: str, target: str, name: str
) -> None:
    answered = await front.ask(method, target, None if method == "GET" else {})
    denied(answered, name, 400 if name == "unreadable_request" else 403)
    assert front.lines == []


def test_no_route_reads_without_naming_its_source() -> None:
    lists = ("/namespaces", "/describe_index_stats")
    for route in ROUTES:
        if route.route_class in (RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE):
            assert route.find_sources is not None or route.pattern in lists, route.pattern
        if route.filters_documents:
            assert route.plan_forward is not None, route.pattern


def test_routes_are_of_their_class() -> None:
    dialect = Pinecone(source(1, "pinecone"), CLOCK.monotonic)
    for method, path, class_ in (
        ("POST", "/vectors/fetch_by_metadata", RouteClass.RETRIEVE),
        ("POST", "/namespaces/a/documents/upsert", RouteClass.WRITE),
        ("GET", "/assistant/files/a/b", RouteClass.RETRIEVE),
    ):
        match = dialect.match(method, canonical(path))
        assert match is not None
        assert match.route.route_class is class_
