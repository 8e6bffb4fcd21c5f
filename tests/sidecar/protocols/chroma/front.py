"""A listener in front of a real Chroma server, and what the tests of Chroma ask it."""

import asyncio
import http.client
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import chromadb

from policies.definitions.model import Policy
from tests.sidecar.protocols.ticking import Ticking
from tests.sidecar.proxy.raw_client import Answered, one
from tests.support.proxy import Sidecar, listening, policy, sidecar, source

TENANT = "default_tenant"
_LINE = re.compile(rb"^([A-Z]+ /\S* HTTP/1\.1)\r$", re.MULTILINE)
QUERY = {"query_embeddings": [[1.0, 2.0]], "n_results": 1}
UNKNOWN = "11111111-2222-3333-4444-555555555555"


# The spellings of an id that Chroma accepts.
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "upper case": str.upper,
    "without hyphens": lambda text: text.replace("-", ""),
    "urn": lambda text: f"urn:uuid:{text}",
    "braces": lambda text: f"{{{text}}}",
    "escaped braces": lambda text: f"%7B{text}%7D",
    "escaped": lambda text: "".join(f"%{ord(each):02x}" for each in text),
}


def direct(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """The status and the decoded response of Chroma itself."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    raw = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, raw, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


@dataclass
class Relay:
    """A relay between the listener and Chroma that records every request line: the access log that
    Chroma doesn't have."""

    upstream: int
    port: int = 0
    lines: list[str] = field(default_factory=list)
    answered: bytes = b""
    """All that came back."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.upstream)

        async def pump(
            source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, noting: bool
        ) -> None:
            try:
                while data := await source.read(65536):
                    if noting:
                        found = _LINE.findall(data)
                        self.lines += [line.decode().removesuffix(" HTTP/1.1") for line in found]
                    else:
                        self.answered += data
                    sink.write(data)
                    await sink.drain()
            except ConnectionError:
                pass
            finally:
                sink.close()

        await asyncio.gather(pump(reader, back, noting=True), pump(there, writer, noting=False))


@asynccontextmanager
async def relaying(upstream: int) -> AsyncIterator[Relay]:
    relay = Relay(upstream)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()


@dataclass
class Front:
    """A listener in front of Chroma with a database for one test: the collections `open_docs` and
    `open_more` may be read, and `shut_docs` may not."""

    port: int
    chroma: int
    database: str
    ids: dict[str, str]
    relay: Relay
    sidecar: Sidecar
    ticking: Ticking

    @property
    def base(self) -> str:
        return f"/api/v2/tenants/{TENANT}/databases/{self.database}"

    @property
    def names(self) -> str:
        return f"{self.base}/collections"

    def one(self, name: str, verb: str = "") -> str:
        return f"{self.names}/{self.ids[name]}{verb}"

    def source(self, name: str) -> str:
        return f"chroma://kb/{TENANT}/{self.database}/{name}"

    def direct(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return direct(self.chroma, method, path, body)

    def create(self, name: str, database: str | None = None) -> str:
        """A collection with one document that holds the collection's name."""
        names = self.names if database is None else self.names.replace(self.database, database)
        status, made = self.direct("POST", names, {"name": name})
        assert status == 200, made
        document = {
            "ids": ["1"], "embeddings": [[1.0, 2.0]], "documents": [f"text of {name}"],
            "metadatas": [{"page": 1}], "uris": [None],
        }  # fmt: skip
        status, _ = self.direct("POST", f"{names}/{made['id']}/add", document)
        assert status == 201
        identity: str = made["id"]
        return identity

    async def ask(
        self, method: str, target: str, body: object = None, *fields: str, raw: bytes | None = None
    ) -> Answered:
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: kb", *fields]
        if body is not None or raw is not None:
            lines.append(f"Content-Length: {len(data)}")
            if not any(each.lower().startswith("content-type") for each in fields):
                lines.append("Content-Type: application/json")
        if method == "HEAD":
            lines.append("Connection: close")
            return await _to_the_end(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n")
        return await one(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + data)


async def _to_the_end(port: int, data: bytes) -> Answered:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    raw = await reader.read()
    writer.close()
    return Answered(raw)


@asynccontextmanager
async def fronting(
    chroma: int, tmp_path: Path, *policies: Policy, **changes: Any
) -> AsyncIterator[Front]:
    database = f"db_{os.urandom(6).hex()}"
    direct(chroma, "POST", f"/api/v2/tenants/{TENANT}/databases", {"name": database})
    allowed = policy(allowed_sources=(f"chroma://kb/{TENANT}/{database}/open*",))
    ticking = Ticking()
    async with (
        relaying(chroma) as relay,
        sidecar(tmp_path, *(policies or (allowed,))) as made,
        listening(
            made, replace(source(relay.port, "chroma"), **changes), clock=ticking.clock
        ) as port,
    ):
        front = Front(port, chroma, database, {}, relay, made, ticking)
        for name in ("open_docs", "open_more", "shut_docs"):
            front.ids[name] = front.create(name)
        yield front


def client(front: Front, port: int) -> Any:
    return chromadb.HttpClient(host="127.0.0.1", port=port, database=front.database)
