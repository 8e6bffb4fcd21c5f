"""What one request may look up: lines are counted before they are read, each distinct name is
looked up once, look-ups end with the request, and any excess is the same 400."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.proxy.limits import LIMITS
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.opensearch.front import fronting, lines, refused
from tests.sidecar.protocols.opensearch.server import Server
from tests.sidecar.proxy.raw_client import leave, one
from tests.support.proxy import listening, policy, sidecar, source
from tests.support.scripted_source import Script, Seen, data_source
from tests.support.waiting import until_async

COUNT = 65
NAMES = [f"open_{number}" for number in range(COUNT)]
PATH = ",".join(NAMES)
TERMS = [{"terms": {"a": {"index": name, "id": "1", "path": "x"}}} for name in NAMES]
MSEARCH = lines(*(part for name in NAMES for part in ({"index": name}, {})))
BULK = lines(*(part for name in NAMES for part in ({"index": {"_index": name}}, {"a": 1})))


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Minimal]:
    server = Server()
    for name in NAMES:
        server.create(name)
    async with fronting(tmp_path, server, policy(), writes="allow") as front:
        yield front


def looked_up(front: Minimal) -> list[str]:
    return [line for line in front.lines if line.startswith("GET /_resolve/index/")]


@pytest.mark.parametrize(
    "case",
    [
        ("GET", f"/{PATH}/_search", None),
        ("GET", f"/{PATH}/_mapping", None),
        ("GET", "/open_*/_search", None),
        ("POST", "/_search", {"query": {"bool": {"should": TERMS}}}),
        ("POST", "/_mget", {"docs": [{"_index": name, "_id": "1"} for name in NAMES]}),
        ("POST", "/_msearch", MSEARCH),
        ("POST", "/_msearch", lines({"index": NAMES}, {})),
        ("POST", "/_bulk", BULK),
        ("POST", "/_plugins/_ppl", {"query": f"source={PATH}"}),
        ("POST", "/_plugins/_sql", {"query": "SELECT a FROM " + ", ".join(NAMES)}),
    ],
    ids=["path", "list", "pattern", "terms", "mget", "msearch", "head", "bulk", "ppl", "sql"],
)
async def test_too_many_indices_are_refused_however_they_are_named(
    front: Minimal, case: tuple[str, str, Any]
) -> None:
    await refused(front, case, "unreadable_request", 400)
    assert await front.sources() == [("DENY", "opensearch://kb")]
    assert len(looked_up(front)) <= 64


async def test_each_name_is_looked_up_once_however_many_searches_use_it(front: Minimal) -> None:
    parts = [part for _ in range(7) for name in NAMES[:64] for part in ({"index": name}, {})]
    answered = await front.ask("POST", "/_msearch", raw=lines(*parts))
    assert answered.status == 200
    assert len(looked_up(front)) == len(set(looked_up(front))) == 64
    assert len(await front.sources()) == 64


@pytest.mark.parametrize("name", ["absent", "open_1*"])
async def test_an_uncached_name_is_looked_up_once_too(front: Minimal, name: str) -> None:
    body = lines(*({"index": name}, {}) * 300)
    await front.ask("POST", "/_msearch", raw=body)
    assert len(looked_up(front)) == 1


async def test_lines_are_limited_before_they_are_read(front: Minimal) -> None:
    body = b"{}\n" * (4 * 1024 * 1024 // 3)
    await refused(front, ("POST", "/_msearch", body), "unreadable_request", 400)
    assert front.lines == []
    await refused(front, ("POST", "/_bulk", b"{}\n" * 1001), "unreadable_request", 400)


async def test_documents_and_ranked_searches_are_limited(front: Minimal) -> None:
    documents = {"docs": [{"_index": "open_1", "_id": "1"}] * 1001}
    await refused(front, ("POST", "/_mget", documents), "unreadable_request", 400)
    requests = {"requests": [{"id": "1", "request": {}}] * 1001, "metric": {}}
    await refused(front, ("POST", "/open_1/_rank_eval", requests), "unreadable_request", 400)


def slowly(server: Server) -> Script:
    """A server that takes 50 ms for each response."""
    answer = scripted(server.answer)

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        await answer(seen, writer)

    return script


SEARCH_64 = f"GET /{','.join(NAMES[:64])}/_search HTTP/1.1\r\nHost: kb\r\n\r\n".encode()


async def test_look_ups_end_when_the_agent_leaves(tmp_path: Path) -> None:
    server = Server()
    server.create("x")
    async with minimal(tmp_path, "opensearch", slowly(server), policy()) as front:
        _, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(SEARCH_64)
        await until_async("the source has the requests", lambda: len(front.upstream.begun) >= 3)
        leave(writer)
        # The look-up under way is cancelled, and no other begins.
        await until_async("the source has lost the connection", lambda: front.upstream.lost == 1)
        lookups = len(front.upstream.begun)
        assert lookups < 32
        assert (await front.ask("GET", "/x/_search")).status == 200
        assert len(front.upstream.begun) == lookups + 2
        assert await front.sources() == [("ALLOW", "opensearch://kb/x")]


async def test_all_look_ups_of_a_request_share_one_deadline(tmp_path: Path) -> None:
    # expires on purpose
    limits = replace(LIMITS, lookup_seconds=0.2)
    async with data_source(slowly(Server())) as upstream, sidecar(tmp_path, policy()) as running:
        configured = source(upstream.port, "opensearch")
        async with listening(running, configured, limits) as port:
            answered = await one(port, SEARCH_64)
        denied(answered, "unresolved_source")
        assert "longer than 0.2 s" in answered.json["message"]
        assert len(upstream.begun) < 32
