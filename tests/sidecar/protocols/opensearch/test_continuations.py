"""Scrolls, points in time, asynchronous searches and cursors stand for the sources they were begun
for, for the user who began them, and are judged at every use. In front of a minimal server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal
from tests.sidecar.protocols.opensearch.front import (
    forwarded,
    fronting,
    indices,
    lines,
    named_server,
    refused,
)
from tests.sidecar.protocols.opensearch.server import Server

ADA, EVE = "X-Sluice-User: ada", "X-Sluice-User: eve"


@pytest.fixture
def server() -> Server:
    server = named_server()
    server.create("open_docs", "low", "low", "low")
    return server


@pytest.fixture
async def front(tmp_path: Path, server: Server) -> AsyncIterator[Minimal]:
    async with fronting(tmp_path, server) as front:
        yield front


async def begun(front: Minimal, target: str, member: str, body: Any = None) -> str:
    answered = await front.ask("POST", target, {} if body is None else body)
    assert answered.status == 200, answered.raw
    token: str = answered.json[member]
    return token


async def test_a_scroll_is_continued_and_released(front: Minimal) -> None:
    token = await begun(front, "/open_docs/_search?scroll=1m", "_scroll_id")
    for method, target, body in (
        ("POST", "/_search/scroll", {"scroll_id": token, "scroll": "1m"}),
        ("GET", f"/_search/scroll/{token}", None),
    ):
        assert indices(await front.ask(method, target, body)) == {"open_docs"}
    assert await front.sources() == [("ALLOW", "opensearch://kb/open_docs")] * 3
    assert (await front.ask("DELETE", f"/_search/scroll/{token}")).status == 200
    assert (await front.ask("DELETE", "/_search/scroll", {"scroll_id": [token]})).status == 200


async def test_a_point_in_time_is_judged_as_its_index(front: Minimal) -> None:
    token = await begun(front, "/open_docs/_search/point_in_time?keep_alive=1m", "pit_id")
    answered = await front.ask("POST", "/_search", {"pit": {"id": token}})
    assert indices(answered) == {"open_docs"}
    several = lines({}, {"pit": {"id": token}})
    assert (await front.ask("POST", "/_msearch", raw=several)).status == 200
    assert {source for _, source in await front.sources()} == {"opensearch://kb/open_docs"}
    looked = {"terms": {"page": {"index": "shut_docs", "id": "1", "path": "page"}}}
    front.upstream.seen.clear()
    case = ("POST", "/_search", {"pit": {"id": token}, "query": looked})
    await refused(front, case, source="shut_docs")
    case = ("POST", "/shut_docs/_search", {"pit": {"id": token}})
    await refused(front, case, source="shut_docs")
    assert (await front.ask("DELETE", "/_search/point_in_time", {"pit_id": [token]})).status == 200


async def test_an_asynchronous_search_is_judged_as_its_index(front: Minimal) -> None:
    start = "/_plugins/_asynchronous_search"
    token = await begun(front, f"{start}?index=open_docs&keep_alive=1m", "id")
    assert (await front.ask("GET", f"{start}/{token}")).status == 200
    assert await front.sources() == [("ALLOW", "opensearch://kb/open_docs")] * 2
    assert (await front.ask("DELETE", f"{start}/{token}")).status == 200


async def test_a_cursor_is_judged_as_its_query(front: Minimal) -> None:
    query = {"query": "SELECT page FROM open_docs", "fetch_size": 1}
    token = await begun(front, "/_plugins/_sql", "cursor", query)
    assert (await front.ask("POST", "/_plugins/_sql", {"cursor": token})).status == 200
    assert await front.sources() == [("ALLOW", "opensearch://kb/open_docs")] * 2
    assert (await front.ask("POST", "/_plugins/_sql/close", {"cursor": token})).status == 200
    front.upstream.seen.clear()
    both = {"cursor": token, "query": "SELECT page FROM shut_docs"}
    await refused(front, ("POST", "/_plugins/_sql", both), "unreadable_request", 400)


async def test_a_token_that_was_not_issued_here_is_denied(front: Minimal, server: Server) -> None:
    # A token that the server knows, begun past the sidecar on the shut index.
    server.pages["theirs"] = ([], server.concrete("shut_docs"))
    for method, target, body in (
        ("POST", "/_search/scroll", {"scroll_id": "theirs"}),
        ("GET", "/_search/scroll/theirs", None),
        ("POST", "/_search", {"pit": {"id": "theirs"}}),
        ("POST", "/open_docs/_search", {"pit": {"id": "theirs"}}),
        ("POST", "/_msearch", lines({}, {"pit": {"id": "theirs"}})),
        ("GET", "/_plugins/_asynchronous_search/theirs", None),
        ("GET", "/_async_search/theirs", None),
        ("GET", "/_async_search/status/theirs", None),
        ("POST", "/_sql", {"cursor": "theirs"}),
        ("POST", "/_plugins/_sql", {"cursor": "theirs"}),
        ("GET", "/_sql/async/theirs", None),
        ("GET", "/_query/async/theirs", None),
        ("POST", "/_query/async/theirs/stop", None),
        ("DELETE", "/_search/scroll/theirs", None),
        ("DELETE", "/_search/scroll/_all", None),
        ("DELETE", "/_search/scroll", {"scroll_id": ["theirs"]}),
        ("DELETE", "/_search/point_in_time", {"pit_id": "theirs"}),
        ("DELETE", "/_pit", {"id": "theirs"}),
        ("DELETE", "/_async_search/theirs", None),
        ("DELETE", "/_plugins/_asynchronous_search/theirs", None),
        ("POST", "/_sql/close", {"cursor": "theirs"}),
    ):
        await refused(front, (method, target, body), "unresolved_source")
    for target in ("/_search/point_in_time/_all", "/_search/pipeline", "/_search/pipeline/x"):
        await refused(front, ("DELETE", target, None), "route_denied")


async def test_a_continuation_is_valid_only_for_its_user(front: Minimal) -> None:
    answered = await front.ask("POST", "/open_docs/_search?scroll=1m", {}, ADA)
    token = answered.json["_scroll_id"]
    body = {"scroll_id": token}
    assert (await front.ask("POST", "/_search/scroll", body, ADA)).status == 200
    assert (await front.ask("POST", "/_search/scroll", body, EVE)).status == 403
    assert (await front.ask("DELETE", "/_search/scroll", body, EVE)).status == 403
    front.ticking.ahead = 24 * 3600 + 1
    assert (await front.ask("POST", "/_search/scroll", body, ADA)).status == 403


async def test_a_repeated_continuation_is_refused(front: Minimal) -> None:
    token = await begun(front, "/open_docs/_search?scroll=1m", "_scroll_id")
    front.upstream.seen.clear()
    for method, target, body in (
        ("POST", f"/_search/scroll/{token}", {"scroll_id": token}),
        ("POST", "/_search/scroll", {"scroll_id": token, "index": "shut_docs"}),
        ("POST", f"/_search/scroll?scroll_id={token}", {}),
        ("POST", "/_search/scroll", {"scroll_id": [token]}),
        ("DELETE", f"/_search/scroll/{token}", {"scroll_id": token}),
        ("DELETE", "/_search/scroll", {}),
        ("DELETE", "/_search/scroll", None),
    ):
        await refused(front, (method, target, body), "unreadable_request", 400)


async def test_a_continuation_is_denied_once_its_source_is(tmp_path: Path, server: Server) -> None:
    """The source is judged at the level that it has at the time of the continuation."""
    async with fronting(tmp_path, server) as front:
        token = await begun(front, "/open_docs/_search?scroll=1m", "_scroll_id")
        raised = await front.ask(
            "POST", "/_search/scroll", {"scroll_id": token}, "X-Sluice-Sensitivity: critical"
        )
        assert raised.status == 403
        assert forwarded(front) == ["POST /open_docs/_search?scroll=1m"]
