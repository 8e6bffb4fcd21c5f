"""Filtered lists of indices, writes where they are allowed, and denied APIs. In front of a minimal
server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal
from tests.sidecar.protocols.opensearch.front import (
    forwarded,
    fronting,
    lines,
    named_server,
    refused,
)


@pytest.fixture
async def writing(tmp_path: Path) -> AsyncIterator[Minimal]:
    async with fronting(tmp_path, named_server(), writes="allow") as front:
        yield front


OPEN = {"open_docs", "open_more"}


async def test_lists_show_visible_indices_only(front: Minimal) -> None:
    for target in (
        "/_alias", "/_aliases", "/_mapping", "/_settings", "/*/_alias", "/_all/_mapping",
        "/open_*,sh*/_mapping", "/*", "/*/_settings",
    ):  # fmt: skip
        answered = await front.ask("GET", target)
        assert answered.status == 200, answered.raw
        assert OPEN >= set(answered.json) > set(), target
        assert b"shut" not in answered.raw or target.endswith(("alias", "aliases")), target
    found = (await front.ask("GET", "/_alias")).json
    assert found["open_docs"] == {"aliases": {"docs": {}, "both": {}, "shut_alias": {}}}
    for target in ("/_cat/indices?format=json", "/_cat/indices/*?format=json"):
        assert {row["index"] for row in (await front.ask("GET", target)).json} == OPEN
    assert (await front.ask("GET", "/_data_stream")).json == {
        "data_streams": [{"name": "open_logs"}]
    }
    assert await front.sources() == []


async def test_a_resolution_shows_visible_names_only(front: Minimal) -> None:
    answered = await front.ask("GET", "/_resolve/index/*?expand_wildcards=all")
    found = answered.json
    names = {index["name"] for index in found["indices"]}
    assert names == {*OPEN, ".ds-open_logs-000001"}
    assert {alias["name"]: alias["indices"] for alias in found["aliases"]} == {
        "docs": ["open_docs"],
        "both": ["open_docs"],
        "shut_alias": ["open_docs"],
        "logs": [".ds-open_logs-000001"],
    }
    assert [stream["name"] for stream in found["data_streams"]] == ["open_logs"]


async def test_an_alias_of_a_hidden_index_looks_missing(front: Minimal) -> None:
    assert (await front.ask("GET", "/_alias/docs")).json == {"open_docs": {"aliases": {"docs": {}}}}
    for name in ("open_alias", "none"):
        answered = await front.ask("GET", f"/_alias/{name}")
        assert answered.status == 404
        assert b"shut_docs" not in answered.raw


async def test_a_list_in_another_format_is_refused(front: Minimal) -> None:
    for target in ("/_cat/indices", "/_cat/indices?format=text", "/_cat/aliases?v=true"):
        await refused(front, ("GET", target, None), "unreadable_request", 400)
    await refused(front, ("GET", "/_alias?index=shut_docs", None), "unreadable_request", 400)
    await refused(front, ("GET", "/_cluster/health?level=indices", None), "unreadable_request", 400)
    await refused(front, ("GET", "/_resolve/index/c:*", None), "unresolved_source")


async def test_requests_that_reveal_nothing_need_no_decision(front: Minimal) -> None:
    for target in ("/", "/_cluster/health", "/_cluster/health?wait_for_status=yellow"):
        assert (await front.ask("GET", target)).status == 200
    assert await front.sources() == []


WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/{}/_doc", {"text": "x"}),
    ("PUT", "/{}/_doc/9", {"text": "x", "index": "not a name", "id": 1}),
    ("PUT", "/{}/_create/9", {"text": "x"}),
    ("POST", "/{}/_update/1", {"doc": {"text": "x"}}),
    ("DELETE", "/{}/_doc/9", None),
    ("POST", "/{}/_bulk", lines({"index": {"_id": "8"}}, {"text": "x"}, {"delete": {"_id": "8"}})),
    ("POST", "/_bulk", lines({"create": {"_index": "{}", "_id": "7"}}, {"text": "x"})),
    ("POST", "/{}/_delete_by_query", {"query": {"match_all": {}}}),
    ("POST", "/{}/_update_by_query", {"query": {"match_all": {}}, "script": {"source": "1"}}),
    ("PUT", "/{}/_mapping", {"properties": {}}),
    ("POST", "/{}/_refresh", None),
    ("PUT", "/{}", {"mappings": {}}),
    ("DELETE", "/{}", None),
]


def _of(case: tuple[str, str, Any], name: str) -> tuple[str, str, Any]:
    method, target, body = case
    if isinstance(body, bytes):
        body = body.replace(b"{}", name.encode())
    return method, target.replace("{}", name), body


async def test_writes_are_denied_unless_the_settings_allow_them(front: Minimal) -> None:
    for case in WRITES:
        await refused(front, _of(case, "open_docs"), "write_denied", source="open_docs")
    assert forwarded(front) == []


async def test_allowed_writes_are_judged_like_reading(writing: Minimal) -> None:
    for case in WRITES:
        method, target, body = _of(case, "open_docs")
        raw = body if isinstance(body, bytes) else None
        answered = await writing.ask(method, target, None if raw is not None else body, raw=raw)
        assert answered.status in (200, 201), (case, answered.raw)
    assert set(await writing.sources()) == {("ALLOW", "opensearch://kb/open_docs")}
    writing.upstream.seen.clear()
    for case in WRITES:
        await refused(writing, _of(case, "shut_docs"), source="shut_docs")
        await refused(writing, _of(case, "open_alias"), source="shut_docs")


async def test_each_of_several_writes_is_judged_by_its_own_index(writing: Minimal) -> None:
    for raw in (
        lines({"index": {}}, {}, {"index": {"_index": "shut_docs"}}, {}),
        lines({"delete": {"_id": "1"}}, {"delete": {"_index": "shut_docs", "_id": "1"}}),
        lines({"update": {"_index": "shut_docs", "_id": "1"}}, {"doc": {}}),
    ):
        await refused(writing, ("POST", "/open_docs/_bulk", raw), source="shut_docs")
    for raw in (
        lines({"index": {}}), lines({"index": {}, "delete": {}}, {}), lines({"Index": {}}, {}),
        lines({"index": {"_index": None, "_id": "1"}}, {}, {"index": {"_index": 1.5}}, {}), b"\n",
    ):  # fmt: skip
        await refused(writing, ("POST", "/open_docs/_bulk", raw), "unreadable_request", 400)
    piped = lines({"index": {"pipeline": "p"}}, {})
    await refused(writing, ("POST", "/open_docs/_bulk", piped), "unresolved_source")
    piped_too = ("PUT", "/open_docs/_doc/1?pipeline=p", b"{}")
    await refused(writing, piped_too, "unreadable_request", 400)
    looked = {"terms": {"page": {"index": "shut_docs", "id": "1", "path": "page"}}}
    by_query = ("POST", "/open_docs/_delete_by_query", {"query": looked})
    await refused(writing, by_query, source="shut_docs")


async def test_a_created_or_deleted_name_is_looked_up_again(writing: Minimal) -> None:
    await writing.ask("GET", "/docs/_mapping")
    await writing.ask("PUT", "/open_new", {})
    await writing.ask("GET", "/docs/_mapping")
    assert writing.lines.count("GET /_resolve/index/docs") == 2


def _body(method: str) -> Any:
    return {} if method in ("POST", "PUT") else None


async def test_admin_and_copying_apis_are_denied_even_with_writes(writing: Minimal) -> None:
    for method, target in (
        ("POST", "/_reindex"), ("POST", "/_aliases"), ("PUT", "/open_docs/_alias/x"),
        ("DELETE", "/open_docs/_alias/x"), ("PUT", "/open_docs/_aliases/x"),
        ("PUT", "/_snapshot/r/s"), ("GET", "/_snapshot/_all"), ("POST", "/_snapshot/r/s/_restore"),
        ("PUT", "/open_docs/_clone/x"), ("PUT", "/open_docs/_split/x"),
        ("PUT", "/open_docs/_settings"), ("POST", "/open_docs/_close"), ("GET", "/_cat/shards"),
        ("GET", "/_cluster/state"), ("PUT", "/_cluster/settings"), ("GET", "/_nodes/_all/http"),
        ("GET", "/_tasks"), ("PUT", "/_scripts/x"), ("POST", "/_scripts/painless/_execute"),
        ("GET", "/_render/template"), ("PUT", "/_ingest/pipeline/x"), ("PUT",
        "/_search/pipeline/x"),
        ("PUT", "/_index_template/x"), ("GET", "/_plugins/_security/api/account"),
        ("POST", "/_plugins/_ml/agents/x/_execute"), ("GET", "/_security/user"),
        ("POST", "/_plugins/_rollup/jobs/x"), ("PUT", "/_enrich/policy/x"), ("GET",
        "/_remote/info"),
        ("POST", "/_plugins/_query/_datasources"), ("POST", "/_watcher/watch/x/_execute"),
        ("GET", "/_list/indices"), ("POST", "/_delete_by_query/t/_rethrottle"),
    ):  # fmt: skip
        await refused(writing, (method, target, _body(method)), "route_denied")


async def test_an_unknown_request_is_denied(writing: Minimal) -> None:
    for method, target in (
        ("GET", "/_from_a_newer_version"), ("GET", "/_foo/_search"), ("GET", "/_foo/_mapping"),
        ("PUT", "/_foo"), ("GET", "/open_docs/_foo"), ("GET", "/open_docs/type/1"), ("PATCH", "/"),
        ("POST", "/open_docs/_search/"), ("PUT", "/open_docs/_search"), ("GET", "/open_docs/"),
        ("POST", "/open_docs/_eql/search"), ("GET", "/open_docs/_graph/explore"), ("POST", "/"),
        ("POST", "/open_docs/_terms_enum"), ("GET", "/_plugins/_new/x"), ("PUT", "/_bulk/stream"),
    ):  # fmt: skip
        await refused(writing, (method, target, _body(method)), "unclassified_route")
