"""The property behind every check door: the same request gets the same decision as through the
proxy, and leaves the same record, but for the source type."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.addresses import ListenAddress
from sidecar.proxy.assembly import Proxy
from sidecar.settings.model import Defaults, NamedSource, RestRule, Source
from sidecar.settings.sections import Door
from tests.sidecar.doors.http.checks import SPEAKER, Checks, checks, question
from tests.sidecar.proxy.raw_client import ask
from tests.support.fake_control_api import EVALUATE_KEY, policy
from tests.support.properties import examples
from tests.support.scripted_source import data_source

KINDS = ("rest", "pinecone", "mcp")
WAYS = ("edge", "nginx", "ingress")
PROTOCOLS = {"edge": "envoy_http", "nginx": "forward_auth", "ingress": "forward_auth"}

PIECES = [
    "/", "//", "secret", "open", "%73ecret", "..", ".", "%2e%2e", "%2f", "%5c", "\\", "..;", ";x",
    "%3b", "%00", "#", "?", "%3f", "?x=1", "%252e", "%zz", "a", "%c3%a9", "%c0%ae", "*", "+", "",
]  # fmt: skip
TARGETS = st.lists(st.sampled_from(PIECES), max_size=6).map(lambda parts: "/" + "".join(parts))
FIELDS = st.lists(
    st.sampled_from(
        [
            ("X-Sluice-User", "ada"),
            ("X-Sluice-User", "bob"),
            ("x-sluice-task", "review"),
            ("X-Sluice-Task", "forbidden"),
            ("X-Sluice-Session", "session-1"),
            ("X-Sluice-Sensitivity", "low"),
            ("X-Sluice-Sensitivity", "critical"),
            ("X-Sluice-Sensitivity", "odd"),
            ("baggage", "sluice.user=cy,other=1"),
            ("baggage", "sluice.task=review;x=y,sluice.user=%41"),
            ("Connection", "X-Sluice-User"),
            ("Authorization", "Bearer x"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("Accept", "*/*"),
        ]
    ),
    max_size=4,
)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
NAMES = st.sampled_from(["open", "secret", "", "a/b", "x" * 300])


class Asked(NamedTuple):
    kind: str
    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes = b""


def _call(name: str, method: str) -> bytes:
    params = {"tools/call": {"name": name}, "resources/read": {"uri": f"file:///{name}"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    return orjson.dumps({**message, "params": params.get(method, {"name": name})})


JSON = ("Content-Type", "application/json")
BODIES = st.sampled_from([b"{", b"[]", b'{"a":1,"a":2}', b"\xff"])
REST = st.builds(Asked, st.just("rest"), METHODS, TARGETS, FIELDS)
PINECONE = st.builds(
    Asked,
    st.just("pinecone"),
    st.just("POST"),
    st.sampled_from(["/query", "/vectors/fetch_by_metadata", "/vectors/upsert", "/none"]),
    FIELDS.map(lambda fields: [JSON, *fields]),
    NAMES.map(lambda name: orjson.dumps({"namespace": name, "topK": 1})) | BODIES,
)
METHODS_OF_MCP = st.sampled_from(["tools/call", "resources/read", "prompts/get", "ping", "odd"])
MCP = st.builds(
    Asked,
    st.just("mcp"),
    st.just("POST"),
    st.just("/mcp"),
    FIELDS.map(lambda fields: [JSON, *fields]),
    st.builds(_call, NAMES, METHODS_OF_MCP) | BODIES,
)


def _source(kind: str, port: int, **changes: Any) -> Source:
    known: Any = kind
    whole = Source(
        kind, known, f"http://127.0.0.1:{port}", ListenAddress("127.0.0.1", 0), "medium",
        defaults=Defaults(user="default"), half_close="wait",
    )  # fmt: skip
    return replace(whole, **changes)


class Ways:
    """A sidecar through which one request can go in each way."""

    def __init__(self, asked: Checks) -> None:
        self._asked = asked
        [self._proxy] = [each for each in asked.running.parts.listeners if isinstance(each, Proxy)]

    async def each(self, request: Asked) -> list[tuple[Any, ...]]:
        """What is recorded and counted: by the proxy first, then at each door."""
        found = []
        await self._take()
        for way in ("proxy", *WAYS):
            before = self._counted()
            if way == "proxy":
                await ask(self._proxy.port(request.kind), _proxied(request))
            else:
                door = f"{way}-{request.kind}"
                await self._asked.send(
                    question(door, *request[1:4], request.body, EVALUATE_KEY), request.method
                )
            found.append((way, await self._take(), self._counted() - before))
        return found

    async def _take(self) -> list[Any]:
        """The decisions since the last call, without what tells one event from another."""
        spool = self._asked.running.spool
        await asyncio.sleep(0)
        await self._asked.running.records()  # waits until all are on disk
        batch = await spool.batch(1 << 30, 1 << 20)
        if batch is None:
            return []
        await spool.acknowledge(batch.instance, batch.last_n)
        payloads = map(orjson.loads, batch.payloads)
        return [_told(each) for each in payloads if each["core"]["kind"] == "decision"]

    def _counted(self) -> Counter[str]:
        metrics = self._asked.running.parts.metrics
        return Counter(
            {
                str(sample.labels): int(sample.value)
                for family in metrics.registry.collect()
                if family.name == "sluice_decisions"
                for sample in family.samples
                if sample.name.endswith("_total")
            }
        )


def _told(payload: dict[str, Any]) -> dict[str, Any]:
    public = payload["core"]["pub"]
    asked = {name: value for name, value in public["request"].items() if name != "source_type"}
    personal = {path: value for path, (_salt, value) in payload["open"].items()}
    # The hash of the request covers its source type.
    rest = {name: value for name, value in public.items() if name != "context_hash"}
    return {**rest, "request": asked, "personal": personal}


def _proxied(request: Asked) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1", "Host: gateway", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in request.fields]
    lines += [f"Content-Length: {len(request.body)}"] if request.body else []
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body


@pytest.fixture(scope="module")
def ways() -> Iterator[tuple[asyncio.Runner, Ways]]:
    shut = policy(
        allowed_sources=("*",),
        denied_sources=("rest://rest/secret*", "*/secret", "*/secret/*"),
        denied_tasks=("forbidden",),
        max_sensitivity="high",
    )
    doors: list[Any] = [
        Door(
            f"{way}-{kind}",
            PROTOCOLS[way],  # type: ignore[arg-type]
            kind,
            agent=SPEAKER,
            request_from="original" if way == "ingress" else "forwarded",
        )
        for way in WAYS
        for kind in KINDS
    ]
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> Ways:
            upstream = await stack.enter_async_context(data_source())
            rules = (
                RestRule("GET", "/open/**", "retrieve", "opened", "critical"),
                RestRule("POST", "/a", "retrieve"),
                RestRule("*", "/secret", "deny"),
                RestRule("GET", "/*", "metadata"),
            )
            names = {"pinecone://pinecone/open": NamedSource("vectors", "low")}
            rest, *others = (
                _source("rest", upstream.port, routes=rules),
                _source("pinecone", upstream.port, names=names, mode="report"),
                _source("mcp", upstream.port),
            )
            made = checks(Path(folder), shut, source=rest, others=others, doors=doors)
            return Ways(await stack.enter_async_context(made))

        yield runner, runner.run(enter())
        runner.run(stack.aclose())


@given(REST | PINECONE | MCP)
@examples(1000)
def test_a_check_decides_and_records_the_same_as_the_proxy(
    ways: tuple[asyncio.Runner, Ways], request: Asked
) -> None:
    runner, each = ways
    (_, decided, counted), *doors = runner.run(each.each(request))
    for way, found, counts in doors:
        assert found == decided, way
        assert counts == counted, way
