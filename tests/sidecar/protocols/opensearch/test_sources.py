"""OpenSearch's requests are judged by the indices in their paths, and by what each name stands for.
In front of a minimal server (`server.py`), since no wheel has the real one."""

from pathlib import Path
from typing import Any

import pytest

from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.opensearch.front import (
    READERS,
    fronting,
    indices,
    lines,
    named_server,
    refused,
)
from tests.sidecar.proxy.raw_client import one
from tests.support.proxy import policy


async def test_a_name_is_judged_by_the_indices_behind_it(front: Minimal) -> None:
    parts = ".ds-open_logs-000001"
    for expression, found, judged in (
        ("open_docs", {"open_docs"}, ["open_docs"]),
        ("open_docs,open_more", {"open_docs", "open_more"}, ["open_docs", "open_more"]),
        ("open_d*", {"open_docs"}, ["open_docs"]),
        ("docs", {"open_docs"}, ["open_docs"]),
        ("shut_alias", {"open_docs"}, ["open_docs"]),
        ("open_logs", {parts}, ["open_logs"]),
        (parts, {parts}, ["open_logs"]),
        ("logs", {parts}, ["open_logs"]),
    ):
        before = len(await front.sources())
        answered = await front.ask("POST", f"/{expression}/_search", {})
        assert indices(answered) == found, expression
        records = (await front.sources())[before:]
        assert records == [("ALLOW", f"opensearch://kb/{name}") for name in judged], expression


async def test_one_denied_index_denies_the_request(front: Minimal) -> None:
    # `open*` also matches `open_alias`, which points to `shut_docs`.
    for expression in (
        "shut_docs", "open_docs,shut_docs", "both", "open_alias", "*", "_all", "open*", "shut*",
        ".ds-shut-000001", "*s", "shut", "open_docs,*", "sh*,open_docs", "open_d*,shut_docs",
        "%73hut_docs", "open_docs%2Cshut_docs", "open%2A",
    ):  # fmt: skip
        await refused(front, ("POST", f"/{expression}/_search", {}))


async def test_a_name_that_cannot_be_resolved_is_denied(front: Minimal) -> None:
    for expression in (
        "*,-shut_docs", "open_docs,-open_more", "cluster:open_docs", "*:open_docs",
        "%3Copen_docs%3E", "open_docs::data", "-open_docs", "+open_docs", "open_docs,%20",
        "open%20docs", "nothing*", "open%7Bdocs", "open_docs%22", "open_docs%7C", "o" * 256,
    ):  # fmt: skip
        await refused(front, ("POST", f"/{expression}/_search", {}), "unresolved_source")


async def test_an_ambiguous_path_is_refused(front: Minimal) -> None:
    for target in (
        "/open_docs,/_search", "/,open_docs/_search", "/open_docs,,open_more/_search",
        "/%3Copen-%7Bnow%2Fd%7D%3E/_search", "/open_docs/..%2Fshut_docs/_search",
        "/open_docs//_search", "/open_docs/%2e%2e/_search", "/shut%255fdocs/_search",
    ):  # fmt: skip
        await refused(front, ("GET", target, None), "unreadable_request", 400)


async def test_a_missing_index_name_means_every_index(front: Minimal) -> None:
    for target in (
        "/_search", "/_count", "/_all/_search", "/_field_caps", "/_async_search", "/_rank_eval",
        "/_plugins/_asynchronous_search", "/_validate/query", "/_search_shards",
    ):  # fmt: skip
        await refused(front, ("POST", target, {}))
    await refused(front, ("POST", "/_msearch", lines({}, {})))
    await refused(front, ("POST", "/_mget", {"ids": ["1"]}))


async def test_a_path_without_an_index_is_allowed_if_every_index_is(tmp_path: Path) -> None:
    async with fronting(tmp_path, named_server(), policy()) as front:
        assert len(indices(await front.ask("GET", "/_search"))) >= 3
        assert {each[0] for each in await front.sources()} == {"ALLOW"}


async def test_a_parameter_of_a_search_that_could_name_an_index_is_refused(front: Minimal) -> None:
    await _refuses_parameters(front, "/open_docs/_search")


@pytest.mark.deep(stands_in="test_a_parameter_of_a_search_that_could_name_an_index_is_refused")
async def test_a_parameter_that_could_name_an_index_is_refused(front: Minimal) -> None:
    await _refuses_parameters(front, "/open_docs/_search", "/open_docs/_doc/1", "/_search")


async def _refuses_parameters(front: Minimal, *targets: str) -> None:
    for query in (
        "index=shut_docs", "source=%7B%7D", "=source=%7B%7D", "x=1;index=shut_docs", "i%6edex=x",
        "source_content_type=application/json", "q=a&q=b", "=index=shut_docs", "id=2", "from=%zz",
        "project_routing=x", "type=x", "scroll_id=x", "size=1&%73ize=2", "q=%ff",
        "expand_wildcards=x",
    ):  # fmt: skip
        for target in targets:
            case = ("GET", f"{target}?{query}", None)
            await refused(front, case, "unreadable_request", 400)
    assert front.lines == []


async def test_every_way_to_an_index_is_judged(front: Minimal) -> None:
    for method, what in (
        ("GET", "_doc/1"), ("HEAD", "_doc/1"), ("GET", "_source/1"), ("HEAD", "_source/1"),
        ("GET", "_explain/1"), ("GET", "_termvectors/1"), ("GET", "_field_caps?fields=*"),
        ("GET", "_search_shards"), ("GET", "_mapping"), ("GET", ""), ("HEAD", ""),
        ("GET", "_settings"), ("GET", "_settings/index.*"), ("GET", "_mapping/field/*"),
        ("GET", "_stats"), ("GET", "_alias"), ("GET", "_alias/x"), ("GET", "_segments"),
        ("POST", "_pit?keep_alive=1m"), ("POST", "_search/point_in_time?keep_alive=1m"),
        ("POST", "_async_search"), ("POST", "_plugins/_asynchronous_search"),
        ("POST", "_rank_eval"), ("POST", "_search"), ("GET", "_search?q=x"), ("GET", "_count"),
    ):  # fmt: skip
        target = f"/shut_docs/{what}" if what else "/shut_docs"
        await refused(front, (method, target, _body(method)), source="shut_docs")
    for method, target in (
        ("GET", "/_cat/count/shut_docs"), ("GET", "/_cluster/health/shut_docs"),
        ("POST", "/_plugins/_asynchronous_search?index=shut_docs"),
    ):  # fmt: skip
        await refused(front, (method, target, _body(method)), source="shut_docs")


def _body(method: str) -> Any:
    return {} if method == "POST" else None


async def test_a_judged_request_is_forwarded_byte_for_byte(front: Minimal) -> None:
    raw = b' {"query" : {"match_all":{}}, "size":1e0 }\n'
    await front.ask("POST", "/open_d%6fcs/_search?size=3&q=a%20b", raw=raw)
    assert front.upstream.seen[-1].body == raw
    assert front.lines[-1] == "POST /open_docs/_search?size=3&q=a%20b"


async def test_media_types_of_the_clients_count_as_json(front: Minimal) -> None:
    body = b'{"query": {"match_all": {}}}'
    for media, status in (
        ("application/json", 200),
        ("application/json; charset=UTF-8", 200),
        ("application/vnd.elasticsearch+json; compatible-with=9", 200),
        ("application/yaml", 400),
        ("application/cbor", 400),
        ("application/smile", 400),
        ("application/vnd.elasticsearch+cbor; compatible-with=9", 400),
        ("text/plain", 400),
    ):
        head = f"POST /open_docs/_search HTTP/1.1\r\nHost: kb\r\nContent-Type: {media}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        assert (await one(front.port, head.encode() + body)).status == status, media


async def test_a_name_is_cached_for_thirty_seconds_and_a_pattern_never(
    tmp_path: Path,
) -> None:
    server = named_server()
    async with fronting(tmp_path, server) as front:
        for _ in range(2):
            await front.ask("POST", "/docs/_search", {})
        assert front.lines.count("GET /_resolve/index/docs") == 1
        server.aliases["docs"] = ["shut_docs"]
        assert indices(await front.ask("POST", "/open_d*/_search", {})) == {"open_docs"}
        server.create("open_d_new")
        assert "open_d_new" in indices(await front.ask("POST", "/open_d*/_search", {}))
        front.ticking.ahead = 31.0
        front.upstream.seen.clear()
        await refused(front, ("POST", "/docs/_search", {}), source="shut_docs")


async def test_a_resolution_is_cached_per_credential(tmp_path: Path) -> None:
    server = named_server()
    async with fronting(tmp_path, server) as front:
        narrow = ("Authorization: Basic bmFycm93", "X-Opaque-Id: 1")
        assert (await front.ask("POST", "/docs/_search", {}, *narrow)).status == 200
        assert (await front.ask("POST", "/docs/_search", {}, narrow[0])).status == 200
        assert front.lines.count("GET /_resolve/index/docs") == 1
        server.aliases["docs"] = ["shut_docs"]
        for field in ("Authorization: Basic d2lkZQ==", "es-security-runas-user: root"):
            assert (await front.ask("POST", "/docs/_search", {}, field)).status == 403
        assert front.upstream.seen[0].values("authorization") == ["Basic bmFycm93"]


async def test_a_failed_look_up_denies(tmp_path: Path) -> None:
    found: list[tuple[int, Any]] = [(200, {})]
    script = scripted(lambda *_: found[0])
    async with minimal(tmp_path, "opensearch", script, READERS) as front:
        for found[0] in (
            (403, {}),
            (405, {}),
            (500, {}),
            (200, []),
            (200, {"indices": [{}]}),
            (200, {"views": [{"name": "open_docs"}]}),
            (200, {"indices": [{"name": "cluster:open_docs"}]}),
            (200, {"aliases": [{"name": "open_docs", "indices": 1}]}),
        ):
            answered = await front.ask("POST", "/open_docs/_search", {})
            denied(answered, "unresolved_source")


async def test_a_missing_index_is_its_own_source(front: Minimal) -> None:
    assert (await front.ask("GET", "/open_none/_mapping")).status == 404
    assert await front.sources() == [("ALLOW", "opensearch://kb/open_none")]
    front.upstream.seen.clear()
    await refused(front, ("GET", "/shut_none/_mapping", None), source="shut_none")


async def test_a_policy_can_use_a_plain_name_for_an_index(tmp_path: Path) -> None:
    names = {"opensearch://kb/shut_docs": NamedSource("contracts", "low")}
    readers = policy(allowed_sources=("contracts",))
    async with fronting(tmp_path, named_server(), readers, names=names) as front:
        for expression in ("shut_docs", "open_alias", "shut_d*"):
            answered = await front.ask("POST", f"/{expression}/_search", {})
            assert indices(answered) == {"shut_docs"}
        assert set(await front.sources()) == {("ALLOW", "contracts")}
        front.upstream.seen.clear()
        await refused(front, ("POST", "/open_docs/_search", {}))
