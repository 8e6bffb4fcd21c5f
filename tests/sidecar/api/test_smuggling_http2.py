"""The corpus of the proxy's tests of HTTP/2 on the sidecar's own port and at its check doors, in
TLS and in the clear: what is malformed decides nothing, and the connection goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.doors.http.checks import Checks, checks
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import data, headers
from tests.sidecar.proxy.test_http2_smuggling import CALM, FLOODS, HEADS, PROTOCOL_ERROR, Agent
from tests.sidecar.wire import GOOD
from tests.support.certificates import authority
from tests.support.fake_control_api import EVALUATE_KEY
from tests.support.sidecar import EVALUATE

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_a_head_that_http_1_would_not_have_is_refused"
)
KEY = (b"x-api-key", EVALUATE_KEY.encode())
SCHEMES = pytest.mark.parametrize("scheme", [b"http", b"https"])
WAYS = pytest.mark.parametrize(
    "path", [EVALUATE, "/v1/check/edge/a", "/v1/check/nginx"], ids=["api", "envoy", "forward auth"]
)


@asynccontextmanager
async def agent(tmp_path: Path, scheme: bytes) -> AsyncIterator[tuple[Checks, Agent]]:
    changed: dict[str, Any] = {}
    secure = None
    if scheme == b"https":
        changed["listen_tls"] = authority().issue("127.0.0.1")
        secure = authority().client()
        secure.set_alpn_protocols(["h2"])
    async with checks(tmp_path, **changed) as made:
        address = made.running.address
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=secure)
        writer.write(frames.begin())
        try:
            yield made, Agent(reader, writer, b"gateway", scheme)
        finally:
            writer.transport.abort()


def _head(client: Agent, way: str, *more: tuple[bytes, bytes], **changed: bytes) -> Any:
    original = [(b"x-forwarded-method", b"GET"), (b"x-forwarded-uri", b"/a")]
    fields = [KEY, (b"content-type", b"application/json"), *more]
    pseudo = {"method": b"POST" if way == EVALUATE else b"GET", "path": way.encode(), **changed}
    return client.head(*fields, *(original if "nginx" in way else []), **pseudo)


@WAYS
@SCHEMES
async def test_a_head_that_could_smuggle_is_reset_and_decides_nothing(
    tmp_path: Path, scheme: bytes, path: str
) -> None:
    body = [GOOD] if path == EVALUATE else []
    async with agent(tmp_path, scheme) as (made, client):
        for name, (changed, more) in HEADS.items():
            end = await client.request(_head(client, path, *more, **changed), *body)
            assert end is not None, name
            assert (end.kind, end.code) == (frames.RST_STREAM, PROTOCOL_ERROR), name
        assert await made.decided() == []
        end = await client.request(_head(client, path), *body)
        assert end is not None
        assert end.kind in (frames.DATA, frames.HEADERS)
        assert [each["decision"] for each in await made.decided()] == ["ALLOW"]


@SCHEMES
@pytest.mark.parametrize("length", [b"1", b"%d" % (len(GOOD) + 1)])
async def test_a_body_of_another_length_than_announced_decides_nothing(
    tmp_path: Path, scheme: bytes, length: bytes
) -> None:
    async with agent(tmp_path, scheme) as (made, client):
        head = _head(client, EVALUATE, (b"content-length", length))
        end = await client.request(head, GOOD)
        assert end is not None
        assert (end.kind, end.code) == (frames.RST_STREAM, PROTOCOL_ERROR)
        assert await made.decided() == []
        head = _head(client, EVALUATE)
        stream = client.stream()
        client.send(headers(stream, head, end=False))
        client.send(*(data(stream, GOOD[at : at + 1], pad=1) for at in range(len(GOOD))))
        client.send(headers(stream, [(b"x-api-key", b"of another")]))
        end = await client.result(stream)
        assert end is not None
        assert end.kind == frames.DATA
        assert [each["decision"] for each in await made.decided()] == ["ALLOW"]


@SCHEMES
@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_ends_its_connection_and_no_other(
    tmp_path: Path, scheme: bytes, kind: str
) -> None:
    async with agent(tmp_path, scheme) as (made, client):
        stream = client.stream()
        client.send(FLOODS[kind])
        end = await client.result(stream)
        assert end is not None
        assert (end.kind, end.code) == (frames.GOAWAY, CALM)
        assert sum(made.running.parts.connections.cut_off.values()) == 1
        assert await made.decided() == []
        if scheme == b"http":
            assert (await made.ask("edge")).decision == "ALLOW"
