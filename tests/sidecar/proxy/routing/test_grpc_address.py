"""Each way to the gRPC address of a source leads to the source that its REST address leads to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.http.authority import Authority
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT, ProxyPorts, grpc_listener
from sidecar.settings.model import UpstreamTls
from tests.sidecar.proxy.http2_client import Http2Client
from tests.sidecar.proxy.raw_client import ask, get
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, sidecar, source
from tests.support.scripted_source import DataSource, answer, data_source

REST = b'{"result":{"aliases":[]}}'
"""What the REST address answers to everything, the proxy's look-up of aliases included."""
JSON = "Content-Type: application/json"
LOCAL = ListenAddress("127.0.0.1", 0)


@dataclass
class TwoWires:
    """A Qdrant that is also called `g.test`, and its proxy's ports by their names."""

    rest: DataSource
    grpc: DataSource
    sidecar: Sidecar
    ports: dict[str, int]

    async def connected(self, port: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.ports[port])

    async def tunnel(self, where: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A tunnel that the forward proxy has opened."""
        reader, writer = await self.connected(FORWARD_PROXY)
        writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        return reader, writer

    async def judged(self) -> list[tuple[str, str]]:
        return [(decision, source) for decision, _, source in await self.sidecar.decisions()]


@asynccontextmanager
async def two_wires(tmp_path: Path, **changes: Any) -> AsyncIterator[TwoWires]:
    """Both servers speak TLS. Redirected connections were going to the port of gRPC."""
    ours = authority()
    async with (
        data_source(answer("HTTP/1.1 200 OK", REST, JSON), ours.server("localhost")) as rest,
        data_source(answer(body=b"grpc"), ours.server("localhost", "g.test")) as grpc,
        sidecar(tmp_path) as made,
    ):
        both = source(rest.port, "qdrant", path="/kb", hosts=("g.test",), grpc_listen=LOCAL)
        both = replace(
            both, upstream=f"https://localhost:{rest.port}", writes="allow",
            grpc=f"https://localhost:{grpc.port}", tls=UpstreamTls(ca=ours.path), **changes,
        )  # fmt: skip
        towards = Authority("192.0.2.66", grpc.port)
        named = ProxyPorts(LOCAL, transparent=LOCAL, original_destination=lambda _: towards)
        proxy = made.proxy([both], named=named)
        await proxy.start()
        try:
            names = "kb", grpc_listener("kb"), FORWARD_PROXY, TRANSPARENT
            yield TwoWires(rest, grpc, made, {each: proxy.port(each) for each in names})
        finally:
            await proxy.close(1)


async def test_a_port_of_its_own_leads_to_the_source_under_its_names(tmp_path: Path) -> None:
    async with two_wires(tmp_path) as made:
        port = made.ports[grpc_listener("kb")]
        assert port != made.ports["kb"]
        # `path` leads to the source on `listen` alone.
        assert (await ask(port, get("/collections/a", host="g.test"))).body == REST
        opened = await made.connected(grpc_listener("kb"))
        assert (await Http2Client(*opened).ask("/collections/b", host="g.test")).status == 200
        opened[1].close()
        assert made.rest.targets == ["/aliases", "/collections/a", "/collections/b"]
        foreign = await ask(port, get("/collections/c", host="evil.test"))
        assert foreign.json["decision"]["policy_name"] == "unknown_destination"
        assert await made.judged() == [
            ("ALLOW", "qdrant://kb/a"),
            ("ALLOW", "qdrant://kb/b"),
            ("DENY", "http://evil.test:0"),
        ]
        assert made.grpc.connections == 0


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/routing/test_source_lookup.py::test_grpc_leads_to_its_source"
)
async def test_requests_to_the_address_are_judged_for_the_source(tmp_path: Path) -> None:
    ours = authority().issue("g.test")
    async with two_wires(tmp_path, terminate=ours) as made:
        where = f"g.test:{made.grpc.port}"
        absolute = get(f"http://{where}/collections/absolute", host=where)
        assert (await ask(made.ports[FORWARD_PROXY], absolute)).body == REST
        redirected = get("/collections/redirected", host=where)
        assert (await ask(made.ports[TRANSPARENT], redirected)).body == REST
        client = Http2Client(*await made.tunnel(where))
        assert (await client.ask("/collections/tunnel", host=where)).body == REST
        for name, opened in {
            "ended": await made.tunnel(where),
            "hello": await made.connected(TRANSPARENT),
        }.items():
            context = authority().client()
            context.set_alpn_protocols(["h2"])
            await opened[1].start_tls(context, server_hostname="g.test")
            client = Http2Client(*opened)
            there = await client.ask(f"/collections/{name}", host=where, scheme="https")
            assert there.body == REST
        ways = "absolute", "redirected", "tunnel", "ended", "hello"
        assert await made.judged() == [("ALLOW", f"qdrant://kb/{each}") for each in ways]
        assert made.grpc.connections == 0


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/routing/test_source_lookup.py::test_grpc_leads_to_its_source"
)
async def test_tls_that_is_passed_unread_reaches_the_address_that_was_named(
    tmp_path: Path,
) -> None:
    async with two_wires(tmp_path) as made:
        for port in (made.grpc.port, made.rest.port):
            opened = await made.tunnel(f"localhost:{port}")
            await opened[1].start_tls(authority().client(), server_hostname="localhost")
            await _asked(opened)
        opened = await made.connected(TRANSPARENT)
        await opened[1].start_tls(authority().client(), server_hostname="g.test")
        await _asked(opened)
        assert (made.grpc.targets, made.rest.targets) == (["/a", "/a"], ["/a"])
        assert await made.judged() == [("ALLOW", "qdrant://kb")] * 3


async def _asked(opened: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    reader, writer = opened
    writer.write(get("/a"))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
