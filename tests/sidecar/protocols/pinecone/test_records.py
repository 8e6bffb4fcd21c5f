"""Which of Pinecone's records the agent gets: those of the levels that it may see."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.pinecone.front import (
    DOCUMENTS,
    LEVELS,
    MARKED,
    MINE,
    READERS,
    Q,
    index,
)
from tests.sidecar.protocols.pinecone.server import Server
from tests.support.proxy import policy


@pytest.mark.parametrize("wanted", [True, False, None])
async def test_a_query_returns_only_visible_records(marked: Minimal, wanted: bool | None) -> None:
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


async def test_a_fetch_returns_only_visible_records(marked: Minimal) -> None:
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
async def test_a_search_of_records_returns_only_visible_ones(
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
async def test_a_search_of_documents_returns_only_visible_ones(
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
async def test_a_fetch_of_documents_returns_only_visible_ones(
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
async def test_a_request_that_cannot_be_filtered_is_judged_as_critical(
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


async def test_the_client_gets_only_visible_records(marked: Minimal) -> None:
    def read() -> list[list[str]]:
        made = index(marked.port)
        return [
            [each.id for each in made.query(vector=[1.0], top_k=9, namespace="open").matches],
            list(made.fetch(ids=["1", "2", "3"], namespace="open").vectors),
            [each.id for each in made.search(
                namespace="open", top_k=9, inputs={"text": "x"}).result.hits],
        ]  # fmt: skip

    assert await asyncio.to_thread(read) == [["1", "3"]] * 3
