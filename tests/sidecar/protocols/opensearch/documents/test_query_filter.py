"""OpenSearch's documents with a level of their own: an agent cleared up to `medium` sees no other,
however it asks, and the rest of the response is the server's. In front of a minimal server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal, denied
from tests.sidecar.protocols.opensearch.front import fronting, lines
from tests.sidecar.protocols.opensearch.server import Server
from tests.support.proxy import policy

READERS = policy(max_sensitivity="medium")
MARKED: dict[str, Any] = {"sensitivity_field": "meta.level", "sensitivity": "low"}
LEVELS = ("low", "high", "medium", None, "Low", ["low", "critical"], "critical")
MINE = {
    "bool": {
        "must_not": [{"terms": {"meta.level": ["high", "critical"]}}],
        "filter": [{"terms": {"meta.level": ["low", "medium"]}}],
    }
}
ALL: dict[str, Any] = {"match_all": {}}
SEARCH = "/docs/_search"


@pytest.fixture
def server() -> Server:
    server = Server()
    server.create("docs", *LEVELS)
    return server


@pytest.fixture
async def front(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    async with fronting(tmp_path, server, READERS, **MARKED) as front:
        yield front


def identities(answer: Any) -> list[str]:
    return [hit["_id"] for hit in answer["hits"]["hits"]]


async def test_only_visible_documents_are_returned(front: Minimal) -> None:
    knn = {"knn": {"vector": {"vector": [1.0], "k": 9, "filter": {"exists": {"field": "page"}}}}}
    for body in (
        {},
        {"query": ALL},
        {"query": {"bool": {"should": [ALL], "must_not": []}}},
        {"query": {"terms": {"meta.level": ["critical", "low", "medium", "high"]}}},
        {"query": {"bool": {"filter": [{"terms": {"page": list(range(1, 9))}}]}}},
        {"query": knn},
        {"query": {"hybrid": {"queries": [ALL, knn]}}},
        {"knn": {"field": "vector", "query_vector": [1.0], "k": 9}},
        {"query": ALL, "post_filter": {"terms": {"meta.level": ["high"]}}},
        {"retriever": {"standard": {"query": ALL}}},
    ):
        for source in (None, True, False, ["text"], "text", {"excludes": ["vector"]}, ["meta"]):
            search = body if source is None else {**body, "_source": source}
            answered = await front.ask("POST", SEARCH, search)
            assert answered.status == 200, answered.raw
            hits = answered.json["hits"]["hits"]
            assert identities(answered.json) == ["1", "3"], search
            for hit in hits:
                got = hit.get("_source")
                if source in (None, True):
                    assert got.keys() == {"text", "page", "meta", "vector"}
                    assert got["meta"].keys() == {"level", "owner"}
                elif source is False:
                    assert got is None
                elif source == ["meta"]:
                    assert got["meta"].keys() == {"level", "owner"}
                elif isinstance(source, dict):
                    assert got.keys() == {"text", "page", "meta"}
                else:
                    assert got == {"text": "text of docs"}


async def test_counts_and_aggregations_cover_visible_documents_only(front: Minimal) -> None:
    body = {"size": 0, "aggs": {"levels": {"terms": {"field": "page"}}}}
    answered = await front.ask("POST", SEARCH, body)
    buckets = answered.json["aggregations"]["levels"]["buckets"]
    assert [bucket["key"] for bucket in buckets] == ["1", "3"]
    assert answered.json["hits"]["total"]["value"] == 2


async def test_the_condition_is_around_the_query(front: Minimal) -> None:
    theirs = {"bool": {"should": [ALL], "minimum_should_match": 0}}
    await front.ask("POST", SEARCH, {"query": theirs, "size": 3})
    assert front.last == {"query": {"bool": {"must": [theirs], "filter": [MINE]}}, "size": 3}
    await front.ask("POST", SEARCH, {})
    assert front.last == {"query": {"bool": {"must": [ALL], "filter": [MINE]}}}


async def test_the_condition_is_inside_vector_searches(front: Minimal) -> None:
    own = {"term": {"page": 1}}
    near = {"vector": {"vector": [1.0], "k": 2, "filter": own}}
    await front.ask("POST", SEARCH, {"query": {"bool": {"must": {"knn": near}}}})
    inner = front.last["query"]["bool"]["must"][0]["bool"]["must"]["knn"]["vector"]
    assert inner["filter"] == {"bool": {"filter": [own, MINE]}}
    await front.ask("POST", SEARCH, {"query": {"hybrid": {"queries": [{"knn": near}, ALL]}}})
    queries = front.last["query"]["hybrid"]["queries"]
    assert [each["bool"]["filter"] for each in queries] == [[MINE], [MINE]]
    theirs = {"field": "vector", "query_vector": [1.0], "k": 2, "filter": own}
    await front.ask("POST", SEARCH, {"knn": [theirs, {**theirs, "filter": [own]}]})
    assert [each["filter"] for each in front.last["knn"]] == [[own, MINE], [own, MINE]]
    # A condition of its own would add documents that the vectors did not find.
    assert "query" not in front.last
    await front.ask("POST", SEARCH, {"query": {"knn": theirs}, "knn": theirs})
    assert front.last["knn"]["filter"] == [own, MINE]
    assert front.last["query"]["bool"]["filter"] == [MINE]
    ranked = {"rrf": {"retrievers": [{"standard": {"query": ALL}}, {"knn": theirs}], "filter": own}}
    await front.ask("POST", SEARCH, {"retriever": ranked})
    assert front.last["retriever"]["rrf"]["filter"] == [own, MINE]


async def test_a_search_that_may_reveal_other_documents_is_judged_at_critical(
    front: Minimal,
) -> None:
    critical = [("DENY", "opensearch://kb/docs")]
    body: Any
    for body in (
        {"suggest": {"s": {"text": "x", "term": {"field": "text"}}}},
        {"aggs": {"all": {"global": {}}}},
        {"aggs": {"a": {"terms": {"field": "text", "min_doc_count": 0}}}},
        {"aggs": {"a": {"significant_terms": {"field": "text"}}}},
        {"aggs": {"a": {"terms": {"field": "x"}, "aggs": {"b": {"children": {"type": "c"}}}}}},
        {"aggs": {"a": {"top_hits": {"_source": ["text"]}}}},
        {"query": {"has_child": {"type": "c", "query": ALL}}},
        {"query": {"more_like_this": {"fields": ["text"], "like": [{"_id": "2"}]}}},
        {"query": {"terms": {"page": {"index": "docs", "id": "2", "path": "page"}}}},
        {"query": {"nested": {"path": "p", "query": ALL, "inner_hits": {"_source": False}}}},
        {"runtime_mappings": {"meta.level": {"type": "keyword", "script": "emit('low')"}}},
        {"derived": {"meta.level": {"type": "keyword", "script": "emit('low')"}}},
        {"stored_fields": "_none_"},
        {"_source": {"excludes": ["meta"]}},
        {"_source": {"excludes": ["*.level"]}},
        {"_source": {"includes": ["text"], "include": ["meta"]}},
        {"profile": True},
        {"explain": True},
        {"retriever": {"rule": {"retriever": {"standard": {}}}}},
        {"retriever": {"standard": {"query": ALL}}, "query": ALL},
        {"retriever": {"rrf": {"retrievers": [{"pinned": {"ids": ["2"]}}]}}},
    ):
        denied(await front.ask("POST", SEARCH, body), "analysts-read")
    for query in (
        "q=*", "_source=false", "_source_excludes=meta", "_source_includes=text", "explain=true",
        "stored_fields=_none_", "filter_path=hits.hits._id", "suggest_field=text&suggest_text=x",
    ):  # fmt: skip
        denied(await front.ask("POST", f"{SEARCH}?{query}", {}), "analysts-read")
    for method, target in (
        ("GET", "/docs/_count"), ("GET", "/docs/_source/1"), ("GET", "/docs/_termvectors/1"),
        ("GET", "/docs/_explain/1"), ("GET", "/docs/_field_caps?fields=*"), ("GET", SEARCH),
        ("GET", "/docs/_doc/1?_source=false"), ("GET", "/docs/_doc/1?stored_fields=text"),
        ("GET", "/docs/_search_shards"), ("GET", "/docs/_validate/query?q=x"),
    ):  # fmt: skip
        denied(await front.ask(method, target), "analysts-read")
    sql = {"query": "SELECT page FROM docs"}
    denied(await front.ask("POST", "/_plugins/_sql", sql), "analysts-read")
    assert [line for line in front.lines if "_resolve" not in line] == []
    assert set(await front.sources()) == set(critical)


async def test_a_hidden_document_is_reported_as_missing(front: Minimal) -> None:
    seen = await front.ask("GET", "/docs/_doc/1")
    assert seen.json["_source"]["text"] == "text of docs"
    for identity in ("2", "4", "5", "6", "7"):
        answered = await front.ask("GET", f"/docs/_doc/{identity}")
        assert answered.json == {"_index": "docs", "_id": identity, "found": False}
    answered = await front.ask("POST", "/docs/_mget", {"ids": [str(each) for each in range(1, 9)]})
    found = [each["_id"] for each in answered.json["docs"] if each["found"]]
    assert found == ["1", "3"]
    assert len(answered.json["docs"]) == 8
    part = {"docs": [{"_id": "1", "_source": ["text"]}]}
    denied(await front.ask("POST", "/docs/_mget", part), "analysts-read")


async def test_each_of_several_searches_is_filtered(front: Minimal) -> None:
    raw = lines({"index": "docs"}, {}, {}, {"query": ALL, "_source": False}, {"index": "none"}, {})
    answered = await front.ask("POST", "/docs/_msearch", raw=raw)
    one, two, none = answered.json["responses"]
    assert identities(one) == identities(two) == ["1", "3"]
    assert not any("_source" in hit for hit in two["hits"]["hits"])
    assert none["status"] == 404
    sent = [json.loads(line) for line in front.upstream.seen[-1].body.splitlines()]
    assert [each["query"]["bool"]["filter"] for each in sent[1::2]] == [[MINE]] * 3
    assert sent[::2] == [{"index": "docs"}, {}, {"index": "none"}]


async def test_each_page_of_a_scroll_is_filtered_by_level(front: Minimal) -> None:
    first = await front.ask("POST", f"{SEARCH}?scroll=1m", {"_source": ["text"]})
    again = {"scroll_id": first.json["_scroll_id"]}
    second = await front.ask("POST", "/_search/scroll", again)
    for answered in (first, second):
        assert [hit["_source"] for hit in answered.json["hits"]["hits"]] == [
            {"text": "text of docs"}
        ]
    pit = await front.ask("POST", "/docs/_search/point_in_time?keep_alive=1m")
    answered = await front.ask("POST", "/_search", {"pit": {"id": pit.json["pit_id"]}})
    assert identities(answered.json) == ["1", "3"]
    later = await front.ask("POST", "/_plugins/_asynchronous_search?index=docs", {"_source": False})
    assert identities(later.json["response"]) == ["1", "3"]


async def test_the_lineage_counts_what_was_withheld(front: Minimal) -> None:
    await front.ask("POST", "/docs/_mget", {"ids": ["1", "2", "4"]})
    [lineage] = await front.sidecar.lineage()
    assert lineage["detail"]["withheld"] == 2


async def test_an_agent_cleared_for_everything_is_not_filtered(
    tmp_path: Path, server: Server
) -> None:
    async with fronting(tmp_path, server, policy(max_sensitivity="critical"), **MARKED) as front:
        raw = b'{"query":  {"match_all": {}}}'
        answered = await front.ask("POST", f"{SEARCH}?q=*", raw=raw)
        assert len(identities(answered.json)) == len(LEVELS)
        assert front.upstream.seen[-1].body == raw
        assert len(identities((await front.ask("POST", SEARCH, {})).json)) == len(LEVELS)


async def test_an_update_that_returns_the_document_is_denied(
    tmp_path: Path, server: Server
) -> None:
    async with fronting(tmp_path, server, READERS, writes="allow", **MARKED) as front:
        for target, body in (
            ("/docs/_update/7?_source=true", {"doc": {}}),
            ("/docs/_update/7?_source_includes=text", {"doc": {}}),
            ("/docs/_update/7", {"doc": {}, "_source": True}),
            ("/docs/_bulk?_source=true", lines({"update": {"_id": "7"}}, {"doc": {}})),
            ("/docs/_bulk", lines({"update": {"_id": "7"}}, {"doc": {}, "_source": ["text"]})),
            ("/docs/_bulk", lines({"update": {"_id": "7", "_source": True}}, {"doc": {}})),
        ):
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            denied(await front.ask("POST", target, raw=raw), "unresolved_source")
        assert (await front.ask("POST", "/docs/_update/7", {"doc": {}})).status == 200


async def test_the_sidecars_own_token_is_judged_like_the_scroll(front: Minimal) -> None:
    """A caller may name the token under which the sidecar remembers that it added the level."""
    first = await front.ask("POST", f"{SEARCH}?scroll=1m", {"_source": ["text"]})
    before = len(await front.sources())
    token = first.json["_scroll_id"] + "\x00mark"
    await front.ask("POST", "/_search/scroll", {"scroll_id": token})
    assert len(await front.sources()) == before + 1


async def test_a_query_is_filtered_at_any_depth_and_refused_beyond_the_limit(
    front: Minimal,
) -> None:
    query: Any = {"knn": {"vector": {"vector": [1.0], "k": 1}}}
    for depth in range(1, 301):
        query = {"bool": {"must": [query]}}
        if depth in (2, 60):
            answered = await front.ask("POST", SEARCH, {"query": query})
            assert identities(answered.json) == ["1", "3"]
    denied(await front.ask("POST", SEARCH, {"query": query}), "unreadable_request", 400)


async def test_a_response_that_cannot_be_written_is_not_passed_on(
    front: Minimal, server: Server
) -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    server.indices["docs"]["1"]["text"] = deep
    assert (await front.ask("POST", SEARCH, {})).status == 502
    server.indices["docs"]["1"]["meta"]["level"] = deep
    assert identities((await front.ask("POST", SEARCH, {"query": ALL})).json) == ["3"]
