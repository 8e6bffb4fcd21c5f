"""A forward proxy to four sources, and tunnels through it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from policies.definitions.model import Policy
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.settings.model import UpstreamTls
from tests.sidecar.proxy.raw_client import Answered
from tests.sidecar.proxy.test_forward_proxy import proxying
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, sidecar, source
from tests.support.scripted_source import DataSource, answer, data_source

ALERT = b"\x15\x03\x03\x00\x02\x02\x31"
CLOSE = "Connection: close"

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Tunnels:
    """A forward proxy to four sources: `kb` speaks plain HTTP; the others TLS, of which `api` may
    be passed on unread, `shut` may not be written to, and TLS to `seen` ends at the proxy."""

    port: int
    plain: DataSource
    tls: DataSource
    sidecar: Sidecar

    def where(self, alias: str) -> str:
        port = self.plain.port if alias == "kb" else self.tls.port
        return f"{alias}.test:{port}"

    async def connect(
        self, where: str, behind: bytes = b"", limit: int = 1 << 26
    ) -> tuple[bytes, Opened]:
        """The answer's head, and the connection, which reads `limit` bytes ahead."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=limit)
        head = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode()
        writer.write(head + behind)
        return await reader.readuntil(b"\r\n\r\n"), (reader, writer)

    async def over_tls(self, alias: str, name: str | None = None, limit: int = 1 << 26) -> Opened:
        """A tunnel in which TLS is spoken, to `name`."""
        head, (reader, writer) = await self.connect(self.where(alias), limit=limit)
        assert head == b"HTTP/1.1 200 Connection established\r\n\r\n"
        named = f"{alias}.test" if name is None else name
        await writer.start_tls(authority().client(), server_hostname=named)
        return reader, writer


@asynccontextmanager
async def tunnels(
    tmp_path: Path, *policies: Policy, limits: ProxyLimits = LIMITS, hidden: bool = False
) -> AsyncIterator[Tunnels]:
    ours = authority()
    names = "api.test", "shut.test", "seen.test", "other.test", "localhost"
    async with (
        data_source(answer(body=b"plain")) as plain,
        data_source(answer(body=b"tls"), ours.server(*names)) as tls,
        sidecar(tmp_path, *policies) as made,
    ):
        over_tls = replace(
            source(tls.port, tls=UpstreamTls(ca=ours.path), listen=None, writes="allow"),
            upstream=f"https://localhost:{tls.port}/base",
        )
        api = replace(over_tls, alias="api", upstream=f"https://localhost:{tls.port}")
        sources = [
            source(plain.port, hosts=("kb.test",), listen=None),
            replace(api, hosts=("api.test", "other.test:81")),
            replace(api, alias="shut", hosts=("shut.test",), writes="deny"),
            replace(
                over_tls, alias="seen", hosts=("seen.test",), terminate=ours.issue("seen.test"),
                upstream=f"https://127.0.0.1:{tls.port}/base",
                tls=UpstreamTls(ca=ours.path, server_name="localhost"),
            ),
        ]  # fmt: skip
        # One upstream, three sources: each is found by names of its own.
        sources[2] = replace(sources[2], upstream=f"https://localhost.:{tls.port}/shut")
        async with proxying(made, *sources, limits=limits, hidden=hidden) as port:
            yield Tunnels(port, plain, tls, made)


async def broken(reader: asyncio.StreamReader) -> None:
    """Returns once the connection is broken off, or ended with nothing more said."""
    with suppress(ConnectionError, ssl.SSLError):
        async with asyncio.timeout(20):
            assert not await reader.read()


async def read(opened: Opened, data: bytes) -> Answered:
    reader, writer = opened
    writer.write(data)
    async with asyncio.timeout(20):
        raw = await reader.read()
    writer.close()
    return Answered(raw)
