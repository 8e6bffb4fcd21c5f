"""A real listener over a real enforcer and spool, in front of a data source that a test scripts.

The data source records what it receives byte for byte, as an access log would: what a request
became, and whether a denied one got there.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from policies.definitions.model import Key, Policy, TenantSettings
from policies.ground.clock import Clock
from policies.ground.errors import UpstreamFailed
from policies.ground.keys import key_digest, make_key
from policies.ground.listen_address import ListenAddress
from policies.sets.policy_set import (
    PolicySet,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from policies.trail.spool_chain import read_payload
from sidecar.control.client import ControlClient
from sidecar.enforce import Enforcer
from sidecar.http.loop_guard import LoopGuard
from sidecar.live_keys import AgentIdentity, LiveKeys
from sidecar.metrics.metrics import Metrics, make_metrics
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.document_fetcher import AllDocuments
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.policy_view import PolicyView
from sidecar.proxy.assembly import Proxy
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.upstream.egress_policy import Egress
from sidecar.recorder import Recorder
from sidecar.sessions import SessionRegistry
from sidecar.settings.model import Defaults, Source
from sidecar.settings.spool import MIN_SEGMENT_BYTES, SpoolSettings
from sidecar.spool.spool import Spool
from tests import waiting

CLOCK = Clock(now=lambda: time.time_ns() // 1000, monotonic=time.monotonic)
ROLE = "analyst"


def policy(**changes: Any) -> Policy:
    """A policy of the role that allows everything up to `high`, but for `changes`."""
    whole: dict[str, Any] = {
        "policy_id": "pol_1",
        "version": 1,
        "name": "analysts-read",
        "agent_role": ROLE,
        "allowed_sources": ("*",),
        "denied_sources": (),
        "max_sensitivity": "high",
    }
    return Policy(**{**whole, **changes})


class Sidecar:
    """An enforcer with its spool, and the agent that speaks through it. `publish` puts the
    tenant's settings in force."""

    def __init__(
        self,
        enforcer: Enforcer,
        spool: Spool,
        agent: AgentIdentity,
        metrics: Metrics,
        publish: Callable[[TenantSettings], None],
    ) -> None:
        self.publish = publish
        self.enforcer = enforcer
        self.metrics = metrics
        self.egress = Egress(LoopGuard(), metrics.egress_refused.add)
        self.spool = spool
        self.agent = agent

    async def records(self) -> list[dict[str, Any]]:
        """Every record so far, read back from the disk as the control API reads it."""
        await until(lambda: not self.spool.bytes_waiting)
        batch = await self.spool.batch(1 << 30, 1 << 20)
        if batch is None:
            return []
        return [read_payload(orjson.loads(payload)).core for payload in batch.payloads]

    async def decisions(self) -> list[tuple[str, str, str]]:
        """Decision, policy name and source of each."""
        return [
            (
                record["pub"]["response"]["decision"],
                record["pub"]["response"]["policy_name"],
                record["pub"]["request"]["source_id"],
            )
            for record in await self.records()
            if record["kind"] == "decision"
        ]

    async def lineage(self, count: int = 1) -> list[dict[str, Any]]:
        """`pub` of the lineage records, of which there will be `count`."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + waiting.PATIENCE
        while len(found) < count and time.monotonic() < end:
            records = await self.records()
            found = [record["pub"] for record in records if record["kind"] == "lineage"]
            await asyncio.sleep(waiting.POLL)
        return found


@asynccontextmanager
async def sidecar(
    tmp_path: Path, *policies: Policy, spool: SpoolSettings | None = None
) -> AsyncIterator[Sidecar]:
    """A sidecar with these policies, or one that allows everything."""
    key = make_key(os.urandom(32))
    documents = {
        "tenant": tenant_document(TenantSettings("ten_1")),
        role_name(ROLE): role_document(policies or (policy(),)),
        key_name(key_digest(key)): key_document(Key("key_1", "evaluate")),
    }
    policy_set = PolicySet(documents.get)
    policy_set.apply([], 1)
    freshness = Freshness(3600, CLOCK)
    freshness.confirm(CLOCK.monotonic())
    (tmp_path / "cache").mkdir(exist_ok=True)
    # Of thousands of sidecars each fills its segments with zeros: the smallest will do.
    settings = spool or SpoolSettings(tmp_path / "spool", segment_bytes=MIN_SEGMENT_BYTES)
    opened = await Spool.open(settings, "sidecar-test", CLOCK, os.urandom)
    running = asyncio.get_running_loop().create_task(opened.run())
    # There is no control API here: a session can't be claimed, and nothing else needs one.
    control = await ControlClient("http://127.0.0.1:9", "unused").__aenter__()
    sessions = SessionRegistry(control, CacheFile(tmp_path / "cache"), documents.get, CLOCK)
    metrics = make_metrics(CollectorRegistry())
    view = PolicyView(policy_set, freshness, AllDocuments(), CLOCK.monotonic)
    recorder = Recorder(opened, metrics, CLOCK, os.urandom, view.masks)
    enforcer = Enforcer(view, sessions, recorder, metrics, os.urandom)

    def publish(settings: TenantSettings) -> None:
        documents["tenant"] = tenant_document(settings)
        policy_set.apply(["tenant"], policy_set.revision + 1)

    try:
        agent = AgentIdentity.of(None, ROLE, key, LiveKeys(policy_set, CLOCK))
        yield Sidecar(enforcer, opened, agent, metrics, publish)
    finally:
        await control.__aexit__(None, None, None)
        running.cancel()
        await opened.close(1)


def source(port: int, kind: str = "rest", **changes: Any) -> Source:
    """A source named `kb` on a port that the system chooses."""
    whole = Source(
        alias="kb",
        kind=kind,
        upstream=f"http://127.0.0.1:{port}",
        listen=ListenAddress("127.0.0.1", 0),
        sensitivity="medium",
        defaults=Defaults(user="ada"),
    )
    return replace(whole, **changes)


@asynccontextmanager
async def listening(
    made: Sidecar, configured: Source, limits: ProxyLimits = LIMITS, clock: Clock = CLOCK
) -> AsyncIterator[int]:
    """The port of a listener. Under uvloop it has idle connections to the data source, so that
    simple requests take the fast path; under asyncio's own loop the first ones take the slow path.
    """
    proxy = Proxy((configured,), made.agent, made.enforcer, clock, made.egress, limits)
    await proxy.start()
    if type(asyncio.get_running_loop()).__module__.startswith("uvloop"):
        await warm(proxy)
    try:
        yield proxy.port(configured.alias)
    finally:
        await proxy.close(1)


async def warm(proxy: Proxy, connections: int = 1) -> None:
    """Opens idle connections to the data source, if it can be reached."""
    upstream = proxy.endpoints[0].upstream
    with contextlib.suppress(UpstreamFailed):
        for connection in [await upstream.pool.connect() for _ in range(connections)]:
            upstream.release(connection)


@dataclass
class Seen:
    """One request as the data source received it: bytes of the head, and of the body as framed."""

    head: bytes
    body: bytes = b""
    whole: bool = True
    """Whether the body came to its end."""

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    @property
    def fields(self) -> list[tuple[str, str]]:
        lines = self.head.split(b"\r\n")[1:]
        return [
            (name, value.strip())
            for name, _, value in (line.decode("latin-1").partition(":") for line in lines if line)
        ]

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.fields if each.lower() == name.lower()]


Script = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def answer(head: str = "HTTP/1.1 200 OK", body: bytes = b"ok", *fields: str) -> Script:
    """A script that answers with a length."""
    lines = [head, *fields, f"Content-Length: {len(body)}"]

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        empty = seen.line.startswith("HEAD ")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if empty else body))

    return script


@dataclass
class DataSource:
    """What arrived, and what is answered."""

    script: Script = field(default_factory=answer)
    seen: list[Seen] = field(default_factory=list)
    begun: list[Seen] = field(default_factory=list)
    lost: int = 0
    """Connections that ended before a request on them was answered."""
    port: int = 0
    connections: int = 0
    open: int = 0
    """Connections that are open now."""

    @property
    def targets(self) -> list[str]:
        return [each.target for each in self.seen]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen = Seen(head)
                self.begun.append(seen)
                await self._body(reader, seen)
                self.seen.append(seen)
                answering = asyncio.get_running_loop().create_task(self._answer(seen, writer))
                gone = asyncio.get_running_loop().create_task(_gone(reader))
                await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    self.lost += 1
                    answering.cancel()
                    return
                gone.cancel()
                await answering
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        await self.script(seen, writer)
        await writer.drain()

    async def _body(self, reader: asyncio.StreamReader, seen: Seen) -> None:
        lengths = seen.values("content-length")
        try:
            if lengths:
                await self._counted(reader, seen, int(lengths[0]))
            elif seen.values("transfer-encoding"):
                while True:
                    size = int((await reader.readuntil(b"\r\n")).strip(), 16)
                    seen.body += await reader.readexactly(size)
                    await reader.readexactly(2)
                    if not size:
                        break
        except (asyncio.IncompleteReadError, ConnectionError):
            seen.whole = False
            raise

    async def _counted(self, reader: asyncio.StreamReader, seen: Seen, left: int) -> None:
        while left:
            part = await reader.read(min(left, 65536))
            if not part:
                raise asyncio.IncompleteReadError(b"", left)
            seen.body += part
            left -= len(part)


async def _gone(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.01)


@asynccontextmanager
async def data_source(
    script: Script | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[DataSource]:
    made = DataSource() if script is None else DataSource(script)
    server = await asyncio.start_server(made._serve, "127.0.0.1", 0, limit=1 << 20, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@dataclass
class Stand:
    """A rest listener in front of a scripted data source."""

    port: int
    upstream: DataSource
    sidecar: Sidecar
    unread: tuple[str, ...] = ("rest://kb",)
    """The names under which what can't be read may be recorded."""

    async def ask(self, data: bytes) -> "Answered":
        return await ask(self.port, data)


@asynccontextmanager
async def standing(
    tmp_path: Path, *policies: Policy, limits: ProxyLimits = LIMITS, **changes: Any
) -> AsyncIterator[Stand]:
    async with (
        data_source() as upstream,
        sidecar(tmp_path, *policies) as made,
        listening(made, source(upstream.port, **changes), limits) as port,
    ):
        yield Stand(port, upstream, made)


@dataclass
class Answered:
    """What a raw client got, up to the end of the connection."""

    raw: bytes

    @property
    def head(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[0]

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def fields(self) -> dict[str, str]:
        lines = self.head.split(b"\r\n")[1:]
        return {
            name.lower(): value.strip()
            for name, _, value in (line.decode("latin-1").partition(":") for line in lines)
        }

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


async def ask(port: int, data: bytes, *, seconds: float = 10) -> Answered:
    """Sends `data`, closes the sending side, reads to the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    writer.write(data)
    writer.write_eof()
    try:
        async with asyncio.timeout(seconds):
            raw = await reader.read()
    finally:
        writer.close()
    return Answered(raw)


async def one(port: int, data: bytes, *, seconds: float = 10) -> Answered:
    """Sends `data` and reads one answer of a known length, leaving the sending side open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(seconds):
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            found = Answered(head).fields.get("content-length", "0")
            return Answered(head + await reader.readexactly(int(found)))
    finally:
        writer.close()


def get(target: str, *fields: str, host: str = "kb.test") -> bytes:
    """A GET of the plainest form."""
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def until(true: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for what other tasks bring about; longer on a busy machine."""
    await waiting.until_async("it", true, seconds)


def leave(writer: asyncio.StreamWriter) -> None:
    """Closes so that the other side hears of it at once, as a killed process does."""
    transport = writer.transport
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    transport.abort()
