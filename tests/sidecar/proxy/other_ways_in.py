"""Stands between a test and the sidecar, and takes what the test sends by another way in: so that
what is tested of the reverse proxy, byte for byte, is tested of the others with the same tests.

    absolute    request lines are written in absolute form
    tunnel      a CONNECT first, then what was sent
    opened      a CONNECT first, then TLS with the operator's certificate, and in it what was sent
    redirected  as it is, on a connection that was meant for another place
    unwrapped   the same, in TLS with the operator's certificate

Ends pass as ends, and resets as resets.
"""

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from policies.definitions.model import Policy
from policies.ground.addresses import ListenAddress
from sidecar.http.authority import Authority
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT, ProxyPorts
from sidecar.proxy.limits import LIMITS, ProxyLimits
from tests.support.certificates import authority
from tests.support.proxy import ProxySetup, Sidecar, sidecar, source, warm
from tests.support.scripted_source import data_source

WAYS = ("absolute", "tunnel", "opened", "redirected", "unwrapped")
TLS = ("opened", "unwrapped")
REDIRECTED = ("redirected", "unwrapped")
NAMES = ("kb.test", "kb")

_UNREAD = {
    "absolute": "web://127.0.0.1:0", "tunnel": "http://kb.test:80", "opened": "https://kb.test:443",
    "redirected": "http://198.51.100.7:80", "unwrapped": "https://kb.test:443",
}  # fmt: skip

_LINE = re.compile(rb"^([A-Za-z]+) (/[^\r\n ]*) (?=HTTP/)", re.MULTILINE)
_HOST = re.compile(rb"^host:[ \t]*(kb(?:\.test)?)\r?$", re.MULTILINE | re.IGNORECASE)


class Plain:
    """What passes as it is."""

    def __init__(self, change: Callable[[bytes], bytes] = bytes) -> None:
        self.ended = False
        """Whether the proxy has sent all."""
        self._change = change

    def out(self, data: bytes) -> bytes:
        """What goes out for what the test sent."""
        return self._change(data)

    def end(self) -> bytes:
        """What goes out before the end of the sending side."""
        return b""

    def back(self, data: bytes) -> tuple[bytes, bytes]:
        """What the test gets of what came back, and what goes out for it."""
        return data, b""


class OverTls:
    """What passes inside of TLS."""

    def __init__(self, name: str = "kb.test") -> None:
        self.ended = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = authority().client()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    async def shake(self, wire: "Wire") -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                pass
            finally:
                await wire.send(self._outgoing.read())
            self._incoming.write(await wire.read())

    def out(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def end(self) -> bytes:
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    def back(self, data: bytes) -> tuple[bytes, bytes]:
        self._incoming.write(data)
        plain = b""
        try:
            while more := self._tls.read(65536):
                plain += more
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # in place of b"" once both sides have ended
            self.ended = True
        return plain, self._outgoing.read()


class Wire:
    """One connection. Unlike asyncio's streams it gives all that came before a reset."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def read(self) -> bytes:
        return await self._loop.sock_recv(self._socket, 65536)

    async def read_head(self) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await self._loop.sock_recv(self._socket, 1)
        return head

    def has_ended(self) -> bool:
        """Whether the other side's end has come, and nothing before it."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return False

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    def end(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool) -> None:
        if reset:
            at_once = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self._socket.close()


class Detour:
    """Goes to the way's `port`."""

    def __init__(self, way: str, port: int) -> None:
        self._way = way
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The port at which tests connect."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            self._start(self._accept(server))
            try:
                yield server.getsockname()[1]
            finally:
                for each in self._tasks:
                    each.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, server: socket.socket) -> None:
        while True:
            connected, _ = await asyncio.get_running_loop().sock_accept(server)
            self._start(self._serve(connected))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connected: socket.socket) -> None:
        test, proxy = Wire(connected), Wire(socket.create_connection(("127.0.0.1", self._port)))
        reset = True
        try:
            form = await self._begun(proxy)
            async with asyncio.TaskGroup() as both:
                both.create_task(_out(test, proxy, form))
                both.create_task(_back(proxy, test, form))
            reset = False
        except* (ConnectionError, ssl.SSLError):
            pass  # goes on as a reset
        finally:
            test.close(reset=reset)
            proxy.close(reset=reset)

    async def _begun(self, wire: Wire) -> Plain | OverTls:
        if self._way == "absolute":
            return Plain(_absolute)
        if self._way not in REDIRECTED:
            where = "kb.test:443" if self._way in TLS else "kb.test:80"
            await wire.send(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            assert (await wire.read_head()).startswith(b"HTTP/1.1 200 ")
        if self._way not in TLS:
            return Plain()
        form = OverTls()
        await form.shake(wire)
        return form


async def _out(test: Wire, proxy: Wire, form: Plain | OverTls) -> None:
    told = False
    while data := await test.read():
        if form.ended:
            continue
        # The end goes out with what comes before it: a proxy that has read the one has the other.
        told = test.has_ended()
        await _to_proxy(proxy, form.out(data) + (form.end() if told else b""))
    if form.ended:
        return
    if not told:
        await _to_proxy(proxy, form.end())
    if isinstance(form, Plain):
        proxy.end()


async def _back(proxy: Wire, test: Wire, form: Plain | OverTls) -> None:
    # An end within TLS is the end: a reset may follow it.
    while not form.ended and (data := await proxy.read()):
        plain, reply = form.back(data)
        await _to_proxy(proxy, reply)
        await test.send(plain)
    form.ended = True
    test.end()


async def _to_proxy(proxy: Wire, data: bytes) -> None:
    # If it has closed, what it said before is yet to be read.
    with suppress(ConnectionError):
        await proxy.send(data)


def _absolute(data: bytes) -> bytes:
    named = _HOST.search(data)
    host = b"kb.test" if named is None else named[1]
    return _LINE.sub(rb"\1 http://" + host + rb"\2 ", data)


@asynccontextmanager
async def detour(tmp_path: Path, way: str, *policies: Policy) -> AsyncIterator[ProxySetup]:
    """As `proxy_setup`, but for the way in."""
    async with (
        data_source() as upstream,
        sidecar(tmp_path, *policies) as made,
        detoured(made, upstream.port, way) as port,
    ):
        yield ProxySetup(port, upstream, made, ("rest://kb", _UNREAD[way]))


@asynccontextmanager
async def detoured(
    made: Sidecar, upstream: int, way: str, limits: ProxyLimits = LIMITS
) -> AsyncIterator[int]:
    """As `listening`, but for the way in. `upstream` is the data source's port."""
    terminate = authority().issue("kb.test") if way in TLS else None
    # No server has this address, and none may be asked.
    meant = Authority("198.51.100.7", 443 if way in TLS else 80)
    configured = replace(
        source(upstream, hosts=NAMES, listen=None, writes="allow"), terminate=terminate
    )
    listen = ListenAddress("127.0.0.1", 0)
    named = ProxyPorts(None, False, listen, lambda _transport: meant)
    if way not in REDIRECTED:
        named = ProxyPorts(listen)
    proxy = made.proxy((configured,), named=named, limits=limits)
    await proxy.start()
    await warm(proxy)
    to = Detour(way, proxy.port(TRANSPARENT if way in REDIRECTED else FORWARD_PROXY))
    try:
        async with to.listening() as port:
            yield port
    finally:
        await proxy.close(1)
