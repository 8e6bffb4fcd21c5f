"""An agent without a socket, for tests of how the proxy takes what arrives: every segment is cut as
a test says, and none is delivered while reading is paused, as with a socket.

Knows every way in: a listener of one source, one that is told apart by paths, absolute form,
tunnels, redirected connections, each of the last two with TLS that ends at the sidecar.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.ground.addresses import ListenAddress
from sidecar.http.authority import Authority
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT, Proxy, ProxyPorts
from sidecar.proxy.limits import LIMITS, ProxyLimits
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.proxy import Sidecar, sidecar, source, warm
from tests.support.scripted_source import DataSource, Seen, data_source

OWN, SHARED, ABSOLUTE, TUNNEL, OPENED, REDIRECTED, UNWRAPPED = WAYS = (
    "own", "shared", "absolute", "tunnel", "opened", "redirected", "unwrapped",
)  # fmt: skip
_TLS = (OPENED, UNWRAPPED)
_ALIASES = b'{"result":{"aliases":[]}}'

Protocol = Callable[[], Any]


class Agent(asyncio.Transport):
    """One connection; `made` makes the protocol at its other end."""

    def __init__(self, made: Protocol) -> None:
        super().__init__()
        self.received = bytearray()
        """All that came back, decrypted."""
        self.held = 0
        """How often a segment had to wait, since reading was paused."""
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closing = self._paused = False
        self._tls: ssl.SSLObject | None = None
        self._protocol = made()
        self._protocol.connection_made(self)

    async def send(self, segments: Iterable[bytes], turns: int = 0) -> None:
        """Each as soon as reading is not paused, and `turns` turns of the loop after the last."""
        for segment in segments:
            while self._paused and not self._closing:
                self.held += 1
                await asyncio.sleep(0)
            if self._closing:
                return
            self._protocol.data_received(segment)
            for _ in range(turns):
                await asyncio.sleep(0)

    async def received_once(self, done: Callable[[bytes], bool]) -> bytes:
        """Return what came back, once it is `done` or the connection has ended."""
        async with asyncio.timeout(waiting.PATIENCE):
            while not (done(bytes(self.received)) or self._closing):
                self._arrived.clear()
                await self._arrived.wait()
        return bytes(self.received)

    async def shake(self) -> None:
        """Speaks TLS from now on."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = authority().client()
        tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="kb.test")
        while True:
            self._incoming.write(bytes(self.received))
            self.received.clear()
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send([self._outgoing.read()])
                await self.received_once(bool)
            else:
                break
        self._tls = tls
        await self.send([self._outgoing.read()])

    def sealed(self, data: bytes) -> bytes:
        """`data` as it goes over the connection."""
        if self._tls is None:
            return data
        self._tls.write(data)
        return self._outgoing.read()

    def end(self) -> None:
        """Ends the sending side."""
        if not self._closing and not self._protocol.eof_received():
            self.close()

    # ------------------------------------------------------------------------------- the transport

    def write(self, data: Any) -> None:
        if self._closing:
            return
        if self._tls is None:
            self.received += data
        else:
            self._incoming.write(data)
            self._decrypt(self._tls)
        self._arrived.set()

    def _decrypt(self, tls: ssl.SSLObject) -> None:
        try:
            while plain := tls.read(65536):
                self.received += plain
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            return

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._arrived.set()
            self._loop.call_soon(lambda: self._protocol.connection_lost(None))

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default


@dataclass
class WayIn:
    """One way in, to a source of the kind `qdrant` (`/collections/…`, of which bodies are read and
    judged), or one of the kind `rest` (of which they pass as they come)."""

    way: str
    upstream: DataSource
    sidecar: Sidecar
    proxy: Proxy
    kind: str

    async def agent(self) -> Agent:
        """A connection on which requests may be sent."""
        agent = Agent(self.proxy.listeners[self._port].protocol_factory())
        if self.way in (TUNNEL, OPENED):
            where = f"kb.test:{443 if self.way == OPENED else 80}"
            await agent.send([f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode()])
            assert (await agent.received_once(bool)).startswith(b"HTTP/1.1 200 ")
            agent.received.clear()
        if self.way in _TLS:
            await agent.shake()
        return agent

    def head(self, method: str, path: str, *fields: str) -> bytes:
        """A request's head."""
        if self.way == SHARED:
            path = f"/kb{path}"
        if self.way == ABSOLUTE:
            path = f"http://kb.test{path}"
        lines = [f"{method} {path} HTTP/1.1", "Host: kb.test", *fields]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    @property
    def _port(self) -> str:
        if self.way in (ABSOLUTE, TUNNEL, OPENED):
            return FORWARD_PROXY
        return TRANSPARENT if self.way in (REDIRECTED, UNWRAPPED) else "kb"


@asynccontextmanager
async def way_in(
    tmp_path: Path, way: str, kind: str = "qdrant", limits: ProxyLimits = LIMITS
) -> AsyncIterator[WayIn]:
    tmp_path.mkdir(exist_ok=True)
    async with data_source(_answer) as upstream, sidecar(tmp_path) as made:
        configured = source(upstream.port, kind, writes="allow")
        if way == SHARED:
            configured = replace(configured, path="/kb")
        elif way != OWN:
            ends = authority().issue("kb.test") if way in _TLS else None
            configured = replace(configured, hosts=("kb.test",), listen=None, terminate=ends)
        listen = ListenAddress("127.0.0.1", 0)
        meant = Authority("198.51.100.7", 443 if way in _TLS else 80)
        named = ProxyPorts(listen, False, listen, lambda _transport: meant)
        proxy = made.proxy((configured,), limits=limits, named=named)
        await proxy.start()
        await warm(proxy)
        try:
            yield WayIn(way, upstream, made, proxy, kind)
        finally:
            await proxy.close(1)


async def _answer(seen: Seen, writer: asyncio.StreamWriter) -> None:
    told = _ALIASES if seen.target == "/aliases" else b"%d" % len(seen.body)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))


def chunks(body: bytes, size: int) -> bytes:
    """The body in chunks of this many bytes."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def cut(data: bytes, sizes: Iterator[int]) -> list[bytes]:
    """`data` in segments of these sizes."""
    at, found = 0, []
    while at < len(data):
        size = next(sizes)
        found.append(data[at : at + size])
        at += size
    return found


def answers(received: bytes) -> list[tuple[int, bytes]]:
    """Status and body of the whole answers that came back."""
    found = []
    while b"\r\n\r\n" in received:
        head, _, rest = received.partition(b"\r\n\r\n")
        lengths = [
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        length = lengths[0] if lengths else 0
        if len(rest) < length:
            break
        found.append((int(head[9:12]), rest[:length]))
        received = rest[length:]
    return found
