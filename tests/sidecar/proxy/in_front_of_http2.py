"""A listener of the proxy in front of a data source of HTTP/2."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sidecar.proxy.limits import LIMITS, ProxyLimits
from tests.sidecar.proxy.http2_client import Http2Client
from tests.support.http2_source import Http2Source, Script, answers, http2_source
from tests.support.proxy import Sidecar, listening, sidecar, source

GET = b"GET %b HTTP/1.1\r\nHost: kb.test\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def in_front(
    tmp_path: Path,
    script: Script = answers,
    *,
    streams: int = 100,
    limits: ProxyLimits = LIMITS,
    **changes: Any,
) -> AsyncIterator[tuple[int, Http2Source, Sidecar]]:
    """A `rest` listener in front of a data source of HTTP/2: its port, and the two."""
    changes = {"http": "2"} | changes
    async with (
        http2_source(script, streams=streams) as upstream,
        sidecar(tmp_path) as made,
        listening(made, source(upstream.port, **changes), limits) as port,
    ):
        yield port, upstream, made


@asynccontextmanager
async def client_of(port: int) -> AsyncIterator[Http2Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Http2Client(reader, writer)
    finally:
        writer.close()
