"""A listener in front of a minimal server that stands in for the real one. `upstream.seen` has what
it received, byte for byte."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from policies.definitions.model import Policy
from tests.sidecar.protocols.ticking import Ticking
from tests.sidecar.proxy.raw_client import Answered, one
from tests.support.proxy import Sidecar, listening, sidecar, source
from tests.support.scripted_source import DataSource, Script, Seen, data_source


@dataclass
class Minimal:
    """The listener's port, its sidecar and its data source."""

    port: int
    upstream: DataSource
    sidecar: Sidecar
    ticking: Ticking

    async def ask(
        self, method: str, target: str, body: object = None, *fields: str, raw: bytes | None = None
    ) -> Answered:
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: kb", *fields]
        if data:
            lines += [f"Content-Length: {len(data)}", "Content-Type: application/json"]
        return await one(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    @property
    def lines(self) -> list[str]:
        """The method and target of every request that arrived."""
        return [each.line.removesuffix(" HTTP/1.1") for each in self.upstream.seen]

    @property
    def last(self) -> Any:
        """The last body that arrived."""
        return orjson.loads(self.upstream.seen[-1].body)

    async def sources(self) -> list[tuple[str, str]]:
        """The decision and source of each record."""
        return [(each[0], each[2]) for each in await self.sidecar.decisions()]


Answering = Callable[[str, str, bytes], tuple[int, Any]]
"""Status and JSON that answer a method, a target and a body; None as JSON is an empty body."""


def scripted(answering: Answering) -> Script:
    """A script that responds with JSON."""

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        method, target, _ = seen.line.split(" ")
        status, answer = answering(method, target, seen.body)
        raw = b"" if answer is None else json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(raw)}\r\n\r\n"
        writer.write(head.encode() + (b"" if method == "HEAD" else raw))

    return script


@asynccontextmanager
async def minimal(
    tmp_path: Path, kind: str, script: Script, *policies: Policy, **changes: Any
) -> AsyncIterator[Minimal]:
    ticking = Ticking()
    async with (
        data_source(script) as upstream,
        sidecar(tmp_path, *policies) as made,
        listening(made, source(upstream.port, kind, **changes), clock=ticking.clock) as port,
    ):
        yield Minimal(port, upstream, made, ticking)


def denied(answered: Answered, policy_name: str, status: int = 403) -> None:
    """Denied by this check, with nothing of the data source's in the response."""
    assert answered.status == status, answered.raw[:400]
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert answered.json["decision"]["policy_name"] == policy_name
    assert b"text of" not in answered.raw
