"""The indices that a body names: look-ups at any depth, and each part of a body with several
requests. In front of a minimal server, since no wheel has the real one."""

import json
from typing import Any

from tests.sidecar.protocols.minimal import Minimal
from tests.sidecar.protocols.opensearch.front import (
    forwarded,
    indices,
    lines,
    refused,
)

LOOKED_UP = [
    {"query": {"terms": {"page": {"index": "shut_docs", "id": "1", "path": "page"}}}},
    {"query": {"terms": {"term": {"index": "shut_docs", "id": "1", "path": "page"}}}},
    {"query": {"terms": {"page": {
        "index": "shut_docs", "path": "page", "query": {"match_all": {}}}}}},
    {"query": {"bool": {"must": [{"bool": {"must_not": {
        "terms": {"page": {"index": "open_alias", "id": "1", "path": "page"}}}}}]}}},
    {"query": {"geo_shape": {"at": {"indexed_shape": {"index": "shut_docs", "id": "1"}}}}},
    {"query": {"geo_shape": {"at": {"indexed_shape": {"id": "1"}}}}},
    {"query": {"percolate": {"field": "q", "index": "shut_docs", "id": "1"}}},
    {"query": {"more_like_this": {"like": [{"_index": "shut_docs", "_id": "1"}]}}},
    {"query": {"more_like_this": {"like": ["x", {"_index": "shut_docs", "_id": "1"}]}}},
    {"indices_boost": [{"shut_docs": 2.0}]},
    {"indices_boost": {"shut_docs": 2.0}},
    {"runtime_mappings": {"f": {"type": "lookup", "target_index": "shut_docs"}}},
    {"aggs": {"a": {"filter": {"terms": {
        "page": {"index": "shut_docs", "id": "1", "path": "p"}}}}}},
    {"post_filter": {"terms": {"page": {"index": ["shut_docs"], "id": "1", "path": "page"}}}},
    {"rescore": {"query": {"rescore_query": {"terms": {
        "page": {"index": "shut_docs", "id": "1", "path": "p"}}}}}},
    {"knn": {"field": "v", "query_vector_builder": {"lookup": {"index": "shut_docs", "id": "1"}}}},
    {"retriever": {"standard": {"query": {"pinned": {"docs": [
        {"_index": "shut_docs", "_id": "1"}], "organic": {"match_all": {}}}}}}},
]  # fmt: skip


async def test_an_index_that_a_body_looks_up_is_judged(front: Minimal) -> None:
    for body in LOOKED_UP:
        # A shape look-up without an index uses the index `shapes`.
        source = "shut_docs" if "shut_docs" in json.dumps(body) else "shapes"
        source = "shut_docs" if "open_alias" in json.dumps(body) else source
        for verb in ("_search", "_count", "_validate/query"):
            await refused(front, ("POST", f"/open_docs/{verb}", body), source=source)
        several = lines({"index": "open_docs"}, {}, {"index": "open_docs"}, body)
        await refused(front, ("POST", "/_msearch", several), source=source)


async def test_an_allowed_look_up_is_recorded(front: Minimal) -> None:
    body = {"query": {"terms": {"page": {"index": "open_more", "id": "1", "path": "page"}}}}
    assert indices(await front.ask("POST", "/open_docs/_search", body)) == {"open_docs"}
    assert sorted(await front.sources()) == [
        ("ALLOW", "opensearch://kb/open_docs"),
        ("ALLOW", "opensearch://kb/open_more"),
    ]


async def test_a_field_called_index_is_not_a_reference(front: Minimal) -> None:
    body: Any
    for body in (
        {"query": {"term": {"index": "shut_docs"}}},
        {"query": {"match": {"index": {"query": "shut_docs", "operator": "and"}}}},
        {"sort": [{"index": "asc"}], "query": {"exists": {"field": "index"}}},
        {"_source": ["index"], "aggs": {"index": {"terms": {"field": "index"}}}},
    ):
        assert (await front.ask("POST", "/open_docs/_search", body)).status == 200


async def test_a_body_that_becomes_a_query_on_the_server_is_denied(front: Minimal) -> None:
    body: Any
    for body in (
        {"query": {"wrapper": {"query": "eyJtYXRjaF9hbGwiOnt9fQ=="}}},
        {"query": {"bool": {"filter": [{"wrapper": {"query": "e30="}}]}}},
        {"query": {"agentic": {"query_text": "all of shut_docs"}}},
        {"query": {"template": {"term": {"x": "${y}"}}}},
        {"search_pipeline": {"request_processors": []}},
        {"ext": {"anything": {}}},
        {"suggest": {"s": {"text": "x", "phrase": {"field": "f", "collate": {"query": {}}}}}},
        {"query": {"terms": {"page": {"index": "*,-open_docs", "id": "1", "path": "p"}}}},
        {"query": {"terms": {"page": {"index": "c:shut_docs", "id": "1", "path": "p"}}}},
        {"from_a_newer_version": 1},
    ):
        await refused(front, ("POST", "/open_docs/_search", body), "unresolved_source")
    for target in (
        "/open_docs/_search/template",
        "/_search/template",
        "/open_docs/_msearch/template",
    ):
        case = ("POST", target, {"source": "{}", "params": {}})
        await refused(front, case, "unresolved_source")
    evaluated = {"requests": [{"id": "a", "template_id": "t", "params": {}, "ratings": []}]}
    await refused(front, ("POST", "/open_docs/_rank_eval", evaluated), "unresolved_source")


async def test_inline_and_stored_scripts_pass(front: Minimal) -> None:
    body = {
        "query": {"script_score": {"query": {"match_all": {}}, "script": {"source": "1"}}},
        "script_fields": {"f": {"script": {"id": "stored", "params": {"a": 1}}}},
    }
    assert (await front.ask("POST", "/open_docs/_search", body)).status == 200


async def test_an_ambiguous_body_is_refused(front: Minimal) -> None:
    for raw in (
        b'{"query": {}, "query": {}}',
        b'{"query": {"terms": {"a": {"index": "open_docs", "index": "shut_docs", "id": 1}}}}',
        b'{"query": {"terms": {"a": {"index": "open_docs", "ind\\u0065x": "shut_docs", "id": 1}}}}',
        b'/* */ {"query": {}}',
        b"\xef\xbb\xbf{}",
        '{"query": {}}'.encode("utf-16"),
        b"query: {}",
        b'{"query": {}} {"query": {}}',
        b"[]",
        b'{"query": {"terms": {"a": {"index": null, "id": "1"}}}}',
    ):
        await refused(front, ("POST", "/open_docs/_search", raw), "unreadable_request", 400)
    assert front.lines == []


async def test_each_head_of_several_searches_names_its_own(front: Minimal) -> None:
    for head in (
        {"index": "shut_docs"},
        {"index": ["open_docs", "shut_docs"]},
        {"index": "open_docs,shut_docs"},
        {"indices": ["open_alias"]},
        {"index": "shut_d*"},
    ):
        raw = lines({"index": "open_docs"}, {}, head, {})
        await refused(front, ("POST", "/open_docs/_msearch", raw), source="shut_docs")


async def test_a_head_without_an_index_takes_the_paths(front: Minimal) -> None:
    raw = lines({}, {}, {"preference": "_local"}, {})
    assert (await front.ask("POST", "/open_docs/_msearch", raw=raw)).status == 200
    assert front.upstream.seen[-1].body == raw
    front.upstream.seen.clear()
    await refused(front, ("POST", "/shut_docs/_msearch", raw), source="shut_docs")


async def test_ambiguous_lines_are_refused(front: Minimal) -> None:
    for raw in (
        lines({"index": "open_docs"}),
        lines({"index": None}, {}),
        lines({"index": []}, {}),
        lines({"index": ""}, {}),
        lines({"index": "open_docs", "index ": "x"}, {}).replace(b"index ", b"index"),
        b'{"index": "open_docs"}\n\n',
        b'\n{"index": "shut_docs"}\n{}\n',
        b'{"index": "open_docs"} {"index": "shut_docs"}\n{}\n',
        b'{"index": "open_docs"}\r{"index": "shut_docs"}\n{}\n',
    ):
        await refused(front, ("POST", "/_msearch", raw), "unreadable_request", 400)
    for raw in (
        lines({"index": "open_docs", "indices": ["shut_docs"]}, {}),
        lines({"index": "open_docs", "from_a_newer_version": 1}, {}),
    ):
        await refused(front, ("POST", "/_msearch", raw), "unresolved_source")


async def test_each_of_several_documents_is_judged_by_its_own_index(front: Minimal) -> None:
    for document in (
        {"docs": [{"_index": "open_docs", "_id": "1"}, {"_index": "shut_docs", "_id": "1"}]},
        {"docs": [{"_id": "1"}, {"_index": "open_alias", "_id": "1"}]},
        {"docs": [{"_index": "shut_docs"}]},
    ):
        for verb in ("_mget", "_mtermvectors"):
            await refused(front, ("POST", f"/open_docs/{verb}", document), source="shut_docs")
    others: list[tuple[str, Any]] = [
        ("/open_docs/_termvectors/1", {"_index": "shut_docs"}),
        ("/open_docs/_termvectors", {"_index": "shut_docs", "_id": "1"}),
        ("/open_docs/_mtermvectors", {"ids": ["1"], "parameters": {"_index": "shut_docs"}}),
        ("/open_docs/_rank_eval", {"requests": [{"id": "a", "ratings": [
            {"_index": "shut_docs", "_id": "1", "rating": 1}]}]}),
    ]  # fmt: skip
    for target, body in others:
        await refused(front, ("POST", target, body), source="shut_docs")
    documents = {"docs": [{"_index": "open_docs", "_id": "1", "doc": {"index": "a b", "x": 1}}]}
    assert (await front.ask("POST", "/_mtermvectors", documents)).status == 200
    assert forwarded(front) == ["POST /_mtermvectors"]
