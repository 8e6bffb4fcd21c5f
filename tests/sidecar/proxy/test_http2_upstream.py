"""Requests that go on to data sources over HTTP/2: framed anew, judged and recorded as before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sidecar.proxy.limits import LIMITS, ProxyLimits
from tests.sidecar.proxy.http2_client import Http2Client
from tests.sidecar.proxy.raw_client import ask
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


async def test_a_request_is_sent_on_over_http_2(tmp_path: Path) -> None:
    async with in_front(tmp_path) as (port, upstream, made):
        got = await ask(port, GET % b"/one")
        assert (got.status, got.body) == (200, b"2\r\nok\r\n0\r\n\r\n")
        [call] = upstream.calls
        assert call.head[:4] == [
            (b":method", b"GET"),
            (b":scheme", b"http"),
            (b":authority", f"127.0.0.1:{upstream.port}".encode()),
            (b":path", b"/one"),
        ]
        assert not {b"host", b"connection"} & dict(call.fields).keys()
        assert [each[0] for each in await made.decisions()] == ["ALLOW"]
        assert not upstream.faults
