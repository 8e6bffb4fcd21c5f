"""A proxy with a port of every kind in front of one data source, and what is left of it: for tests
that end connections in the middle of something."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from policies.ground.addresses import ListenAddress
from sidecar.http.authority import Authority
from sidecar.http.request_body import BodyBudget
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT, Proxy, ProxyPorts
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.settings.model import RestRule
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, policy, sidecar, source
from tests.support.scripted_source import DataSource, Seen, data_source

PORTS = ("kb", "qdrant", "secure", "tcp", FORWARD_PROXY, TRANSPARENT)

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello"
)
BIG = 4 * 1024 * 1024
"""More than the buffers of two connections hold."""


async def by_path(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """Answers as the path says."""
    target = seen.target
    if "silent" in target:
        await waiting.never()
    elif "events" in target:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        await waiting.never()
    elif "stream" in target:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await waiting.never()
    elif "big" in target:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG + bytes(BIG))
    elif "endless" in target:
        writer.write(CHUNKED)
        while True:
            writer.write(b"8000\r\n%b\r\n" % bytes(0x8000))
            await writer.drain()
    elif seen.values("upgrade"):
        writer.write(SWITCHED)
        await waiting.never()
    else:
        named = b'{"result":{"aliases":[],"collections":[{"name":"open"}]}}'
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(named)
        writer.write(head if seen.line.startswith("HEAD ") else head + named)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


def sockets() -> set[str]:
    """The open sockets of this process, both ends of what is within it."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the folder itself
            found.add(str(descriptor.readlink()))
    return {each for each in found if each.startswith("socket:")}


@dataclass
class EveryPort:
    """`meant` is where connections to the transparent port were going."""

    proxy: Proxy
    upstream: DataSource
    sidecar: Sidecar
    bodies: BodyBudget
    meant: list[Authority | None]

    def __post_init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._sockets = sockets()

    async def open(self, port: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.proxy.port(port), limit=65536)

    def left(self) -> dict[str, object]:
        """What is open or held that was not at the start: nothing, once all is over."""
        found = {
            "tasks": asyncio.all_tasks() - self._tasks,
            "sockets": sockets() - self._sockets,
            "agents": self.proxy.agent_connections,
            "sources": self.proxy.source_connections,
            "at the source": self.upstream.open,
            "bytes": self.bodies.held,
        }
        return {name: each for name, each in found.items() if each}

    async def nothing_left(self) -> None:
        found: dict[str, object] = {}

        async def gone() -> bool:
            found.clear()
            found.update(self.left())
            return not found

        try:
            await waiting.until_async("nothing is left", gone)
        except AssertionError:
            raise AssertionError(f"left: {found}") from None

    def counted(self, decision: str) -> float:
        """How many requests with this decision the metrics count."""
        return sum(
            sample.value
            for metric in self.sidecar.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "sluice_proxy_requests_total"
            and sample.labels["decision"] == decision
        )

    async def outcomes(self) -> dict[str, tuple[str, list[str]]]:
        """Of each decision, by its event's id: ALLOW or DENY, and how its retrievals ended."""
        found: dict[str, tuple[str, list[str]]] = {}
        for record in await self.sidecar.records():
            if record["kind"] == "decision":
                found[record["eid"]] = (record["pub"]["response"]["decision"], [])
            elif record["kind"] == "lineage":
                found[record["pub"]["event"]["id"]][1].append(record["pub"]["outcome"])
        return found


@asynccontextmanager
async def every_port(
    tmp_path: Path, limits: ProxyLimits = LIMITS, connections: int = 512
) -> AsyncIterator[EveryPort]:
    """`kb` and `secure` (over TLS, terminated) are of the kind rest, and allow all but `/secret`;
    what is posted below `/ask` is read for the decision."""
    ours, bodies = authority(), BodyBudget()
    closed = policy(denied_sources=("*secret*",))
    echo = await asyncio.start_server(_echo, "127.0.0.1", 0)
    async with data_source(by_path) as upstream, sidecar(tmp_path, closed) as made:
        asks = (RestRule("POST", "/ask/**", "retrieve", None, None),)
        kb = source(upstream.port, hosts=("kb.test", "kb.test:80"), writes="allow", routes=asks)
        secure = source(
            upstream.port,
            alias="secure",
            hosts=("secure.test",),
            listen_tls=ours.issue("secure.test"),
            terminate=ours.issue("secure.test"),
        )
        tcp = replace(
            source(0, "tcp", alias="tcp", hosts=("tcp.test:5432",)),
            upstream=f"tcp://127.0.0.1:{echo.sockets[0].getsockname()[1]}",
        )
        meant: list[Authority | None] = [Authority("192.0.2.66", 80)]
        named = ProxyPorts(
            ListenAddress("127.0.0.1", 0),
            False,
            ListenAddress("127.0.0.1", 0),
            lambda _transport: meant[0],
        )
        proxy = made.proxy(
            (kb, source(upstream.port, "qdrant", alias="qdrant"), secure, tcp),
            limits=replace(limits, connections=connections),
            named=named,
            bodies=bodies,
        )
        await proxy.start()
        try:
            yield EveryPort(proxy, upstream, made, bodies, meant)
        finally:
            echo.close()
            await proxy.close(0)
