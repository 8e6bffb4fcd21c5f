"""A TCP link between two processes that can be made bad. Listens on loopback, in the process that
makes the faults. Knows nothing of what is sent over it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Sequence

CHUNK = 65536


class Link:
    """Listens on `port`, and forwards to one of `targets` in turn; to the next one if that refuses.

    Faults: `latency` seconds are added in both directions. `refusing` refuses connections.
    `garbage` sends random bytes to clients. `reset` breaks open connections, as a dead peer does.
    """

    def __init__(self, targets: Sequence[int]) -> None:
        self.targets = list(targets)
        self.port = 0
        self.latency = 0.0
        self.refusing = False
        self.garbage = False
        self._next = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> Link:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def reset(self) -> None:
        """Close with RST instead of FIN: nothing was finished."""
        for writer in list(self._open):
            connection = writer.get_extra_info("socket")
            # A connection that is closed already has no socket, or one without a number.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            if self.refusing:
                return
            if self.garbage:
                await self._babble(reader, writer)
                return
            found = await self._connect()
            if found is None:
                return
            answers, other = found
            self._open.add(other)
            await asyncio.gather(self._pass(reader, other), self._pass(answers, writer))
        except (OSError, RuntimeError, asyncio.CancelledError):
            # One end is gone (uvloop has a `RuntimeError` for that), or all is over: so is the
            # other end, below.
            pass
        finally:
            for each in (writer, other):
                if each is not None:
                    self._open.discard(each)
                    each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets:
            self._next = (self._next + 1) % len(self.targets)
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self.targets[self._next])
        return None

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self.garbage:
                raise ConnectionResetError
            if self.latency:
                await asyncio.sleep(self.latency)
            writer.write(data)
            await writer.drain()
        # Half-closed: what the other side still says is passed on.
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    async def _babble(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.garbage and await reader.read(CHUNK):
            writer.write(os.urandom(64) + b"\r\n")
            await writer.drain()
