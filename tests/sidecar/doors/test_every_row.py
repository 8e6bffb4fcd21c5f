"""Where a policy allows one source, no check door passes what a proxy would deny or change.

Every row of each protocol's table is asked about, with a source that the policy allows and one that
it doesn't, and with many bodies. What passes at the door is then sent through a proxy with the same
policy: it must forward exactly that request, and relay exactly the response.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sidecar.doors.judgement import Judgement, Outcome
from sidecar.settings.model import Aws
from sidecar.settings.sections import Door
from tests.runner import tiers
from tests.sidecar.doors.door_setup import Asked, gateway_key, shared_parts
from tests.sidecar.doors.every_request import IDS, NAMES, TABLES, Request, requests
from tests.sidecar.protocols.aws import REGION, credentials_file
from tests.sidecar.protocols.milvus.server import Server as MilvusServer
from tests.sidecar.protocols.minimal import Answering, scripted
from tests.sidecar.protocols.opensearch.front import named_server
from tests.sidecar.protocols.weaviate.server import Server as WeaviateServer
from tests.sidecar.proxy.raw_client import ask
from tests.support.proxy import listening, policy, sidecar, source
from tests.support.scripted_source import DataSource, data_source

ALLOWED = {
    "chroma": "chroma://kb/t/d/open",
    "mcp": "mcp://kb/tool/open",
    "milvus": "milvus://kb/default/open_docs",
    "s3": "s3://kb/lake/open",
}
TYPE = (b"Content-Type", b"application/json")


def answering(kind: str) -> Answering:
    """A data source that knows both names."""
    if kind == "milvus":
        return MilvusServer("low").answer
    if kind == "opensearch":
        return named_server().answer
    if kind == "weaviate":
        return WeaviateServer("low").answer

    def answer(_method: str, target: str, raw: bytes) -> tuple[int, Any]:
        if kind == "chroma":
            last = json.loads(raw).get("name") if raw else target.rpartition("/")[2]
            found = IDS.get(last, last)
            by_name = {named: each for each, named in IDS.items()}
            return 200, {"id": by_name.get(found), "tenant": "t", "database": "d", "name": found}
        if kind == "qdrant":
            return 200, {"result": {"aliases": [], "collections": [{"name": "shut"}]}}
        if kind == "mcp":
            return 200, {"jsonrpc": "2.0", "id": json.loads(raw).get("id"), "result": {}}
        return 200, {}

    return answer


class Both(NamedTuple):
    """A door, and a proxy with the same policies in front of the same data source."""

    asked: Asked
    port: int
    upstream: DataSource
    answers: list[Any]
    """What the data source responded, in JSON."""

    async def unlike(self, request: Request) -> str:
        """How the proxy treats a request otherwise than a gateway that forwards it would; empty if
        it doesn't."""
        method, target, body = request.method, request.target, request.body or b""
        lines = [f"{method} {target} HTTP/1.1", "Host: kb", "Connection: close"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        answered = await ask(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        last = self.upstream.seen[-1]
        if answered.fields.get("x-sluice-decision") == "DENY":
            return "denied"
        # A HEAD whose response has to be read is forwarded as a GET.
        methods = (method, "GET" if method == "HEAD" else method)
        if last.line not in [f"{each} {target} HTTP/1.1" for each in methods] or last.body != body:
            return "another request"
        if method != "HEAD" and answered.body and answered.json != self.answers[-1]:
            return "another response"
        return ""


@asynccontextmanager
async def both(folder: Path, kind: str, **changes: Any) -> AsyncIterator[Both]:
    name = NAMES.get(kind, ("open",))[0]
    allowed = policy(allowed_sources=(ALLOWED.get(kind, f"{kind}://kb/{name}"),))
    if kind in ("bedrock", "s3"):
        changes["aws"] = Aws(region=REGION, credentials_file=credentials_file(folder))
    answer, answers = answering(kind), []

    def noting(method: str, target: str, raw: bytes) -> tuple[int, Any]:
        try:
            status, found = answer(method, target, raw)
        except (KeyError, TypeError, AttributeError):
            status, found = 400, {}  # a body that a server would refuse
        answers.append(found)
        return status, found

    async with data_source(scripted(noting)) as upstream, sidecar(folder, allowed) as made:
        configured = source(upstream.port, kind, **changes)
        shared = shared_parts(made)
        judgement = Judgement(Door("edge", "envoy_http", "kb"), configured, shared, made.keys)
        async with listening(made, configured) as port:
            try:
                yield Both(Asked(judgement, made, gateway_key(made)), port, upstream, answers)
            finally:
                judgement.close()
                shared.worker.close()


# Plain reads of the allowed source alone: doors must not be so strict that nothing passes.
PASSES = {
    "chroma": [("POST", "query"), ("POST", "get"), ("GET", "collections/open"), ("GET", "count")],
    "mcp": [("POST", "/mcp")],
    "milvus": [("POST", "/entities/search"), ("POST", "/entities/query")],
    "opensearch": [("GET", "/open_docs/_search"), ("POST", "/open_docs/_count")],
    "pinecone": [("POST", "/query"), ("GET", "/vectors/fetch?ids=1&namespace=open")],
    "qdrant": [("POST", "/collections/open/points/scroll"), ("GET", "/collections/open/points/1")],
    "s3": [("GET", "/lake/open"), ("HEAD", "/lake/open")],
    "weaviate": [("GET", "/v1/objects?class=Open"), ("POST", "/v1/search/Open/vector")],
}
SETTINGS: list[dict[str, Any]] = [{"writes": "allow"}, {"sensitivity_field": "level"}]


@tiers.sampled("kind")
@pytest.mark.parametrize("changes", SETTINGS, ids=["writes", "levels"])
@pytest.mark.parametrize("kind", TABLES)
async def test_a_door_allows_only_what_the_proxy_forwards_unchanged(
    tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    shut = NAMES.get(kind, ("", "shut"))[1]
    shut_id = next(each for each, named in IDS.items() if named == "shut")
    every = list(dict.fromkeys(requests(kind)))
    async with both(tmp_path, kind, **changes) as pair:
        at_once = asyncio.Semaphore(64)

        async def judged(request: Request) -> Outcome:
            async with at_once:
                return await pair.asked.ask(request.method, request.target, TYPE, body=request.body)

        outcomes = await asyncio.gather(*map(judged, every))
        passed = [(each, outcome) for each, outcome in zip(every, outcomes, strict=True)
                  if outcome.passes]  # fmt: skip
        unlike = [(how, each) for each, _ in passed if (how := await pair.unlike(each))]
    assert unlike == []
    decided = [(each.method, each.target) for each, outcome in passed if outcome.decisions]
    assert [
        each for each in decided if shut in each[1].partition("?")[0] or shut_id in each[1]
    ] == []
    if "sensitivity_field" not in changes:
        for method, end in PASSES.get(kind, ()):
            assert [each for each in decided if each[0] == method and each[1].endswith(end)], end
