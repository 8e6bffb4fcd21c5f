"""A transparent proxy without a packet filter: the test says where a connection was going."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from policies.definitions.model import Policy
from policies.ground.addresses import ListenAddress
from sidecar.http.authority import Authority
from sidecar.proxy.assembly import TRANSPARENT, Proxy, ProxyPorts
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.settings.model import UpstreamTls
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.sidecar.proxy.tunnel.test_client_hello import (
    SERVER_NAME,
    server_name,
)
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, sidecar, source
from tests.support.scripted_source import DataSource, answer, data_source

ALERT = b"\x15\x03\x03\x00\x02\x02\x31"
ELSEWHERE = "192.0.2.66"
"""An address that no source has; whatever is meant for it goes where the configuration says."""

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Redirected:
    """`kb` speaks plain HTTP on 8000, `api` TLS on 443, of which nothing is read, TLS to `seen`
    ends at the proxy; `pg` is any protocol, on 5432."""

    port: int
    plain: DataSource
    tls: DataSource
    sidecar: Sidecar
    proxy: Proxy
    meant: list[Authority | None]
    pg: asyncio.Server

    def towards(self, port: int, host: str = ELSEWHERE) -> None:
        """Where connections are meant to go from now on."""
        self.meant[:] = [Authority(host, port)]

    async def ask(self, data: bytes) -> Answered:
        return await ask(self.port, data)

    async def raw(self, data: bytes = b"") -> bytes:
        """All that is answered, to the connection's end; the sending side stays open."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            async with asyncio.timeout(20):
                return await reader.read()
        except ConnectionError:
            return b"reset"
        finally:
            writer.close()

    async def over_tls(self, name: str) -> Opened:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=authority().client(), server_hostname=name
        )


async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A data source that speaks first, and then in capitals."""
    writer.write(b"hello\n")
    while line := await reader.readline():
        writer.write(line.upper())
    writer.write(b"bye\n")
    writer.close()


@asynccontextmanager
async def redirected(
    tmp_path: Path, *policies: Policy, limits: ProxyLimits = LIMITS, hidden: bool = False
) -> AsyncIterator[Redirected]:
    ours = authority()
    pg = await asyncio.start_server(greets, "127.0.0.1", 0)
    async with (
        data_source(answer(body=b"plain")) as plain,
        data_source(answer(body=b"tls"), ours.server("api.test", "seen.test")) as tls,
        sidecar(tmp_path, *policies) as made,
    ):
        api = replace(
            source(tls.port, alias="api", listen=None, writes="allow", hosts=("api.test:443",)),
            upstream=f"https://localhost:{tls.port}",
            tls=UpstreamTls(ca=ours.path, server_name="seen.test"),
        )
        seen = replace(api, alias="seen", hosts=("seen.test",), terminate=ours.issue("seen.test"))
        opaque = source(0, "tcp", alias="pg", listen=None, hosts=("pg.test:5432",))
        port = pg.sockets[0].getsockname()[1]
        sources = [
            source(plain.port, listen=None, hosts=("kb.test:8000",)),
            api,
            replace(seen, upstream=f"https://127.0.0.1:{tls.port}/base", writes="deny"),
            replace(opaque, upstream=f"tcp://127.0.0.1:{port}"),
        ]
        meant: list[Authority | None] = [None]
        named = ProxyPorts(None, hidden, ListenAddress("127.0.0.1", 0), lambda _transport: meant[0])
        proxy = made.proxy(sources, limits=limits, named=named)
        await proxy.start()
        try:
            yield Redirected(proxy.port(TRANSPARENT), plain, tls, made, proxy, meant, pg)
        finally:
            await proxy.close(1)
            pg.close()


NAMED = (SERVER_NAME, server_name(b"api.test"))
"""The hello of a client that names `api.test`."""


async def refusals(made: Redirected) -> list[tuple[str, str]]:
    """Policy name and source of what was denied, once it is recorded."""
    found: list[tuple[str, str]] = []

    async def denied() -> bool:
        found[:] = [each[1:] for each in await made.sidecar.decisions() if each[0] == "DENY"]
        return bool(found)

    await waiting.until_async("a denial is recorded", denied)
    return found


def untouched(made: Redirected) -> bool:
    return made.plain.connections == made.tls.connections == 0
