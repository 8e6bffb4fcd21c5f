"""Which version of HTTP a data source is spoken to in."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from sidecar.settings.model import UpstreamTls
from tests.sidecar.proxy.in_front_of_http2 import GET, in_front
from tests.sidecar.proxy.raw_client import ask
from tests.support.certificates import authority
from tests.support.http2_source import Http2Source, http2_source
from tests.support.proxy import listening, sidecar, source
from tests.support.scripted_source import DataSource, Seen, data_source
from tests.support.waiting import until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_http2_upstream.py::test_a_request_is_sent_on_over_http_2"
)


@asynccontextmanager
async def over_tls(
    tmp_path: Path, offered: list[str] | None, http: str
) -> AsyncIterator[tuple[int, Http2Source | DataSource]]:
    """A listener in front of a data source that speaks TLS, and HTTP/2 if that is `offered`."""
    context = authority().server("localhost")
    if offered is not None:
        context.set_alpn_protocols(offered)
    speaks_2 = offered is not None and "h2" in offered
    server: Any = http2_source(tls=context) if speaks_2 else data_source(tls=context)
    async with server as upstream, sidecar(tmp_path) as made:
        to = source(
            upstream.port,
            upstream=f"https://localhost:{upstream.port}",
            tls=UpstreamTls(ca=authority().path),
            http=http,
        )
        async with listening(made, to) as port:
            yield port, upstream


@pytest.mark.parametrize(
    ("offered", "http", "speaks"),
    [
        (["h2", "http/1.1"], "auto", 2),
        (["http/1.1"], "auto", 1),
        (None, "auto", 1),
        (["h2"], "2", 2),
        (["http/1.1"], "1", 1),
    ],
)
async def test_tls_negotiates_the_version(
    tmp_path: Path, offered: list[str] | None, http: str, speaks: int
) -> None:
    async with over_tls(tmp_path, offered, http) as (port, upstream):
        got = await asyncio.gather(*[ask(port, GET % b"/one") for _ in range(10)])
        assert [each.status for each in got] == [200] * 10
        if isinstance(upstream, Http2Source):
            assert speaks == 2
            assert len(upstream.connections) == 1
            assert dict(upstream.calls[0].head)[b":scheme"] == b"https"
        else:
            assert speaks == 1
            assert len(upstream.seen) == 10


@pytest.mark.parametrize("offered", [["http/1.1"], None])
async def test_a_source_that_does_not_choose_http_2_is_not_reached_with_2(
    tmp_path: Path, offered: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with over_tls(tmp_path, offered, "2") as (port, upstream):
        got = await ask(port, GET % b"/one")
        assert got.status == 502
        assert isinstance(upstream, DataSource)
        assert upstream.seen == []
    assert "it does not choose HTTP/2" in caplog.text


async def test_a_source_of_http_1_in_the_clear_is_not_reached_with_2(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    to = source(server.sockets[0].getsockname()[1], http="2")
    async with sidecar(tmp_path) as made, listening(made, to) as port:
        assert (await ask(port, GET % b"/one")).status == 502
    assert "the server answers in HTTP/1, and not in HTTP/2" in caplog.text
    server.close()


async def test_the_version_that_a_source_speaks_may_change(tmp_path: Path) -> None:
    context = authority().server("localhost")
    context.set_alpn_protocols(["h2", "http/1.1"])
    ports: list[int] = []
    async with sidecar(tmp_path) as made:
        async with http2_source(tls=context) as first:
            ports.append(first.port)
            to = source(
                first.port,
                upstream=f"https://localhost:{first.port}",
                tls=UpstreamTls(ca=authority().path),
            )
            proxy = made.proxy((to,))
            await proxy.start()
            assert (await ask(proxy.port("kb"), GET % b"/one")).status == 200
        await until_async("it is noticed", lambda: not proxy.source_connections)
        context.set_alpn_protocols(["http/1.1"])
        async with data_source(tls=context, port=ports[0]) as second:
            got = await asyncio.gather(*[ask(proxy.port("kb"), GET % b"/one") for _ in range(3)])
            assert [each.status for each in got] == [200] * 3
            assert len(second.seen) == 3
        await until_async("it is noticed", lambda: not proxy.source_connections)
        context.set_alpn_protocols(["h2"])
        async with http2_source(tls=context, port=ports[0]) as third:
            assert (await ask(proxy.port("kb"), GET % b"/one")).status == 200
            assert third.targets == ["/one"]
        await proxy.close(1)


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: kb.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def test_a_websocket_needs_http_1(tmp_path: Path) -> None:
    async with in_front(tmp_path) as (port, upstream, _):
        got = await ask(port, UPGRADE)
        assert got.status == 502
        assert b"http: 2" in got.body
        assert upstream.calls == []


async def test_a_websocket_offers_http_1_alone_where_tls_negotiates(tmp_path: Path) -> None:
    context = authority().server("localhost")
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )

    chosen: list[str] = []
    async with data_source(script, tls=context) as upstream, sidecar(tmp_path) as made:
        to = source(
            upstream.port,
            upstream=f"https://localhost:{upstream.port}",
            tls=UpstreamTls(ca=authority().path),
        )
        proxy = made.proxy((to,))
        await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port("kb"))
        writer.write(UPGRADE)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        assert chosen == ["http/1.1"]
        assert proxy.source_connections == 1
        writer.close()
        await proxy.close(1)


class Grpc(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A server of gRPC that answers a message with itself, many times if asked to a stream."""

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if call.method == "/a.B/Stream":
            return grpc.unary_stream_rpc_method_handler(lambda message, _: iter([message] * 50))
        if call.method == "/a.B/Fail":
            return grpc.unary_unary_rpc_method_handler(
                lambda _, context: context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: ä")
            )
        return grpc.unary_unary_rpc_method_handler(lambda message, _: message)


async def test_calls_of_grpc_pass_between_its_own_clients_and_servers(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(4), handlers=(Grpc(),))
    to = source(server.add_insecure_port("127.0.0.1:0"), http="2", writes="allow")
    server.start()

    def calls(port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for size in (0, 10, 1_000_000):
                message = bytes(size)
                assert channel.unary_unary("/a.B/Echo")(message, timeout=20) == message
            got = channel.unary_stream("/a.B/Stream")(bytes(100_000), timeout=20)
            assert [len(each) for each in got] == [100_000] * 50
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary("/a.B/Fail")(b"", timeout=20)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
            assert error.value.details() == "no such thing: ä"

    async with sidecar(tmp_path) as made, listening(made, to) as port:
        await asyncio.to_thread(calls, port)
        assert {each[0] for each in await made.decisions()} == {"ALLOW"}
    server.stop(None)
