"""A data source that a test scripts. It records the received requests byte for byte, as an access
log would: the form in which a request arrived, and whether a denied one arrived.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support import waiting


@dataclass
class Seen:
    """One request as the data source received it: bytes of the head, and of the body as framed."""

    head: bytes
    body: bytes = b""
    whole: bool = True
    """True if the body came to its end."""
    trailers: bytes = b""
    """The lines behind the last chunk, without the empty one."""

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
    """Return a script that answers with a length."""
    lines = [head, *fields, f"Content-Length: {len(body)}"]

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        empty = seen.line.startswith("HEAD ")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if empty else body))

    return script


class Flood:
    """A script that answers with 64 MiB, and the number of bytes that the connection has taken."""

    SIZE = 64 << 20

    def __init__(self) -> None:
        self.sent = 0

    async def __call__(self, _seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.SIZE)
        while self.sent < self.SIZE:
            writer.write(bytes(65536))
            await writer.drain()
            self.sent += 65536
        writer.close()


def scripted(*parts: bytes | None, close: bool = False) -> Script:
    """Return a script that writes each part; at None it waits until the parts before have
    arrived."""

    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            if part is None:
                await waiting.turns()
            else:
                writer.write(part)
                await writer.drain()
        if close:
            writer.close()

    return script


@dataclass
class DataSource:
    """The requests that arrived, and the answers."""

    script: Script = field(default_factory=answer)
    seen: list[Seen] = field(default_factory=list)
    begun: list[Seen] = field(default_factory=list)
    lost: int = 0
    """The number of connections that ended before a request on them was answered."""
    port: int = 0
    connections: int = 0
    open: int = 0
    """The number of connections that are open now."""

    @property
    def targets(self) -> list[str]:
        return [each.target for each in self.seen]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
                    if not size:
                        break
                    seen.body += await reader.readexactly(size)
                    await reader.readexactly(2)
                while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                    seen.trailers += line
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
    script: Script | None = None, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[DataSource]:
    made = DataSource() if script is None else DataSource(script)
    server = await asyncio.start_server(made.serve, "127.0.0.1", port, limit=1 << 20, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
