"""A sidecar in front of an MCP server that a test scripts message by message, for what neither the
SDK nor a real server would send. It follows the specification and checks nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from policies.definitions.model import Policy
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.proxy import Sidecar, listening, policy, sidecar, source
from tests.support.scripted_source import DataSource, Seen, data_source

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
MODERN = "2026-07-28"

OPEN = policy(
    allowed_sources=(
        "mcp://kb/tool/open*",
        "mcp://kb/prompt/open*",
        "mcp://kb/resource/file:///open/*",
        "mcp://kb/data/open*",
    )
)

CALL = {"name": "open", "arguments": {"region": "west", "count": 42, "deep": {"on": True}}}

Said = dict[str, Any]


@dataclass
class Wire:
    """What a test sends, what the server received, and what it responds."""

    port: int
    sidecar: Sidecar
    upstream: DataSource
    says: Callable[[Said], Any] = field(default=lambda asked: {})
    """The result of a request, or several messages: then they come as a stream."""

    @property
    def arrived(self) -> list[Said]:
        return [orjson.loads(each.body) for each in self.upstream.seen if each.body]

    async def post(self, message: Any, *fields: str, raw: bytes | None = None) -> Answered:
        data = orjson.dumps(message) if raw is None else raw
        lines = [
            "POST /mcp HTTP/1.1",
            "Host: kb",
            "Connection: close",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(data)}",
            *fields,
        ]
        if not any(each.lower().startswith("content-type") for each in fields):
            lines.append("Content-Type: application/json")
        return await ask(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def call(self, method: str, params: Said | None, *fields: str, id_: Any = 1) -> Answered:
        return await self.post(request(method, params, id_), *fields)

    async def answer(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        asked = orjson.loads(seen.body) if seen.body else {}
        said = self.says(asked)
        if isinstance(said, list):
            events = b"".join(b"data: " + orjson.dumps(each) + b"\n\n" for each in said)
            _write(writer, events, "text/event-stream")
        elif isinstance(said, bytes):
            _write(writer, said, "application/json")
        elif "id" in asked and "method" in asked:
            whole = {"jsonrpc": "2.0", "id": asked["id"], "result": said}
            _write(writer, orjson.dumps(whole), "application/json")
        else:
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")


def _write(writer: asyncio.StreamWriter, body: bytes, media: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


def request(method: str, params: Said | None = None, id_: Any = 1) -> Said:
    message: Said = {"jsonrpc": "2.0", "id": id_, "method": method}
    return message if params is None else {**message, "params": params}


def modern(method: str, params: Said, version: str = MODERN) -> Said:
    """A request that states its version, as required since 2026-07-28."""
    return request(method, {**params, "_meta": {VERSION_KEY: version}})


def heads(method: str, name: str | None = None, version: str = MODERN) -> list[str]:
    """The header fields that go with it."""
    found = [f"MCP-Protocol-Version: {version}", f"Mcp-Method: {method}"]
    return found if name is None else [*found, f"Mcp-Name: {name}"]


def plain(answered: Answered) -> bytes:
    """The body of a chunked response."""
    if answered.fields.get("transfer-encoding") != "chunked":
        return answered.body
    body, rest = b"", answered.body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def streamed_messages(answered: Answered) -> list[Said]:
    """The messages of a streamed response."""
    found = []
    for event in plain(answered).split(b"\n\n"):
        lines = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
        if lines:
            found.append(orjson.loads(b"\n".join(lines)))
    return found


@asynccontextmanager
async def wired(tmp_path: Path, *policies: Policy, **changes: Any) -> AsyncIterator[Wire]:
    async with (
        data_source() as upstream,
        sidecar(tmp_path, *(policies or (OPEN,))) as made,
        listening(made, source(upstream.port, "mcp", **changes)) as port,
    ):
        wire = Wire(port, made, upstream)
        upstream.script = wire.answer
        yield wire
