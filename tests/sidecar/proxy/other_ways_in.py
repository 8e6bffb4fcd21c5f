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
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from policies.definitions.model import Policy
from policies.ground.listen_address import ListenAddress
from sidecar.http.authority import Authority
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT, ProxyPorts
from tests.sidecar.proxy.raw_client import leave
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

    def __init__(self) -> None:
        self.ended = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = authority().client()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="kb.test")

    async def shake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                pass
            finally:
                writer.write(self._outgoing.read())
            self._incoming.write(await reader.read(65536))

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
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return plain, self._outgoing.read()


class Detour:
    """Goes to the way's `port`."""

    def __init__(self, way: str, port: int) -> None:
        self._way = way
        self._port = port
        # The loop itself holds tasks by no more than a thread.
        self._tasks: set[object] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        there, away = await asyncio.open_connection("127.0.0.1", self._port, limit=65536)
        try:
            form = await self._begun(there, away)
            await asyncio.gather(_out(reader, away, form), _back(there, writer, away, form))
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            for each in (writer, away):
                with suppress(OSError, AttributeError):
                    leave(each)
        finally:
            writer.close()
            away.close()
            self._tasks.discard(asyncio.current_task())

    async def _begun(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Plain | OverTls:
        if self._way == "absolute":
            return Plain(_absolute)
        if self._way not in REDIRECTED:
            where = "kb.test:443" if self._way in TLS else "kb.test:80"
            writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        if self._way not in TLS:
            return Plain()
        form = OverTls()
        await form.shake(reader, writer)
        return form


async def _out(
    reader: asyncio.StreamReader, away: asyncio.StreamWriter, form: Plain | OverTls
) -> None:
    while data := await reader.read(65536):
        # What is sent to a proxy that has closed goes nowhere. It is read all the same, so that no
        # reset takes from the test what came back.
        if form.ended:
            continue
        away.write(form.out(data))
        try:
            await away.drain()
        except ConnectionError:
            if not form.ended:
                raise
    if form.ended:
        return
    away.write(form.end())
    if isinstance(form, Plain):
        away.write_eof()


async def _back(
    there: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    away: asyncio.StreamWriter,
    form: Plain | OverTls,
) -> None:
    # An end within TLS is the end: a reset may follow it.
    while not form.ended and (data := await there.read(65536)):
        plain, reply = form.back(data)
        if reply:
            away.write(reply)
        writer.write(plain)
        await writer.drain()
    form.ended = True
    if not writer.is_closing():
        writer.write_eof()


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
async def detoured(made: Sidecar, upstream: int, way: str) -> AsyncIterator[int]:
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
    proxy = made.proxy((configured,), named=named)
    await proxy.start()
    await warm(proxy)
    to = Detour(way, proxy.port(TRANSPARENT if way in REDIRECTED else FORWARD_PROXY))
    server = await asyncio.start_server(to.serve, "127.0.0.1", 0, limit=65536)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await proxy.close(1)
