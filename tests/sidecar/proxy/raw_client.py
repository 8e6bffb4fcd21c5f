"""Clients that send bytes as they are given, and keep the response as it came."""

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any

import orjson


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


INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Asks a client that half-closed whether it is still there, if its request takes long."""


async def ask(port: int, data: bytes, *, seconds: float = 10) -> Answered:
    """Sends `data`, closes the sending side, reads to the end. Drops what asks whether it is still
    there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    writer.write(data)
    writer.write_eof()
    try:
        async with asyncio.timeout(seconds):
            raw = await reader.read()
    finally:
        writer.close()
    return Answered(raw.removeprefix(INTERIM))


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


def leave(writer: asyncio.StreamWriter) -> None:
    """Closes so that the other side hears of it at once, as a killed process does."""
    transport = writer.transport
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    transport.abort()
