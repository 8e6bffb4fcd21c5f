"""Clients of HTTP/2 by prior knowledge show why the proxy refuses them, at each of its ports."""

import asyncio
from pathlib import Path

import grpc
import pytest

from sidecar.http.server.http2_refusal import GOAWAY, PREFACE, REASON, SETTINGS
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT
from tests.sidecar.proxy.every_port import every_port
from tests.support.proxy import ProxySetup

OWN_SETTINGS = b"\0\0\6\4\0\0\0\0\0\0\3\0\0\0d"
REQUEST = b"\0\0\5\1\5\0\0\0\1abcde"
TUNNEL = b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\n\r\n"


async def test_a_grpc_client_gets_the_reason_of_the_refusal(setup: ProxySetup) -> None:
    def call() -> grpc.RpcError:
        with grpc.insecure_channel(f"127.0.0.1:{setup.port}") as channel:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary("/a.B/C")(b"", timeout=20)
            return error.value

    error = await asyncio.to_thread(call)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert REASON in error.details()
    decisions = await setup.sidecar.decisions()
    assert set(decisions) == {("DENY", "unreadable_request", "rest://kb")}
    assert len(decisions) <= 2, "it tries once more, as no stream was processed"
    assert setup.upstream.begun == []


@pytest.mark.parametrize(
    ("port", "before"),
    [("kb", b""), (FORWARD_PROXY, b""), (FORWARD_PROXY, TUNNEL), (TRANSPARENT, b"")],
    ids=["listen", "forward proxy", "tunnel", "redirected"],
)
async def test_every_port_that_reads_http_refuses_http_2(
    tmp_path: Path, port: str, before: bytes
) -> None:
    async with every_port(tmp_path) as made:
        reader, writer = await made.open(port)
        writer.write(before)
        if before:
            await reader.readuntil(b"\r\n\r\n")
        writer.write(PREFACE + OWN_SETTINGS + REQUEST)
        assert await reader.read() == SETTINGS + GOAWAY
        writer.close()
        [(decision, name, _)] = await made.sidecar.decisions()
        assert (decision, name) == ("DENY", "unreadable_request")
        assert made.upstream.begun == []
