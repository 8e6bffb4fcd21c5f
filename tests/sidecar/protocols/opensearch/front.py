"""A listener in front of a minimal OpenSearch (`server.py`, since no wheel has the real
one). Its agent may read names that begin with `open`, and nothing else."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from policies.definitions.model import Policy
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.opensearch.server import Server
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.proxy import policy

READERS = policy(allowed_sources=("opensearch://kb/open*",))


def named_server() -> Server:
    """Two open indices, a shut one, a data stream of each kind, and aliases whose names suggest
    the opposite of what they point to."""
    server = Server()
    for name in ("open_docs", "open_more", "shut_docs", ".ds-open_logs-000001", ".ds-shut-000001"):
        server.create(name)
    server.aliases = {
        "docs": ["open_docs"],
        "open_alias": ["shut_docs"],
        "both": ["open_docs", "shut_docs"],
        "shut_alias": ["open_docs"],
        "logs": [".ds-open_logs-000001"],
    }
    server.streams = {"open_logs": [".ds-open_logs-000001"], "shut": [".ds-shut-000001"]}
    server.hidden = {".ds-open_logs-000001", ".ds-shut-000001"}
    return server


@asynccontextmanager
async def fronting(
    tmp_path: Path, server: Server, *policies: Policy, **changes: Any
) -> AsyncIterator[Minimal]:
    script = scripted(server.answer)
    readers = policies or (READERS,)
    async with minimal(tmp_path, "opensearch", script, *readers, **changes) as front:
        yield front


def forwarded(front: Minimal) -> list[str]:
    """The requests that arrived, without the look-ups of names."""
    return [line for line in front.lines if not line.startswith("GET /_resolve/index/")]


async def refused(
    front: Minimal,
    case: tuple[str, str, Any],
    policy_name: str = "analysts-read",
    status: int = 403,
    source: str | None = None,
) -> None:
    """Asserts that a request (method, target, and a body of JSON or bytes) is denied under this
    name, recorded once, and not forwarded."""
    method, target, body = case
    before = len(await front.sources())
    if method == "HEAD":
        head = f"HEAD {target} HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n\r\n"
        answered = await ask(front.port, head.encode())
        assert answered.status == status, case
    else:
        raw = body if isinstance(body, bytes) else None
        answered = await front.ask(method, target, None if raw is not None else body, raw=raw)
        assert answered.status == status, (case, answered.raw)
        denied(answered, policy_name, status)
    assert forwarded(front) == [], case
    records = await front.sources()
    assert len(records) == before + 1, case
    assert records[-1][0] == "DENY", case
    if source is not None:
        assert records[-1][1] == f"opensearch://kb/{source}", case


def lines(*parts: Any) -> bytes:
    """A body with one JSON object per line."""
    return b"".join(json.dumps(part).encode() + b"\n" for part in parts)


def indices(answered: Answered) -> set[str]:
    """The indices of the hits in a response."""
    assert answered.status == 200, answered.raw
    return {hit["_index"] for hit in answered.json["hits"]["hits"]}
