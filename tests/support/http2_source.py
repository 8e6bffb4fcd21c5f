"""A data source of HTTP/2 that a test scripts, by the library `h2`: not the one of the product."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

Fields = list[tuple[str, str]]
OK: Fields = [(":status", "200")]


class Call:
    """One request as it arrives, and the means to answer it."""

    def __init__(self, connection: "Served", stream: int, head: list[tuple[bytes, bytes]]) -> None:
        self.connection, self.stream, self.head = connection, stream, head
        self.body = bytearray()
        self.unread = 0
        """Bytes that arrived and for which the client has no credit yet."""
        self.trailers: list[tuple[bytes, bytes]] = []
        self.ended = asyncio.Event()
        """Set when all of the request has arrived."""
        self.reset: int | None = None
        """The code of the client's reset."""
        self.gone = asyncio.Event()
        """Set at that, or when the connection is lost."""

    @property
    def target(self) -> str:
        return dict(self.head)[b":path"].decode()

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """Those that are no pseudo-header fields."""
        return [each for each in self.head if each[0][:1] != b":"]

    def begin(self, fields: Fields | None = None, *, end: bool = False) -> None:
        self.connection.h2.send_headers(self.stream, fields or OK, end_stream=end)
        self.connection.flush()

    async def data(self, data: bytes, *, end: bool = False) -> None:
        """Sends a part of the body, as the client gives credit for it."""
        h2, at = self.connection.h2, 0
        while at < len(data) and not self.gone.is_set():
            room = min(h2.local_flow_control_window(self.stream), h2.max_outbound_frame_size)
            if room <= 0:
                await self.connection.credited()
                continue
            part = data[at : at + room]
            at += len(part)
            h2.send_data(self.stream, part, end_stream=end and at == len(data))
            self.connection.flush()
        if end and not data:
            h2.end_stream(self.stream)
            self.connection.flush()

    def finish(self, trailers: Fields) -> None:
        self.connection.h2.send_headers(self.stream, trailers, end_stream=True)
        self.connection.flush()

    def refuse(self, code: int) -> None:
        self.connection.h2.reset_stream(self.stream, code)
        self.connection.flush()

    async def answer(self, body: bytes = b"ok", fields: Fields | None = None) -> None:
        self.begin(fields)
        await self.data(body, end=True)


Script = Callable[[Call], Awaitable[None]]


async def answers(call: Call) -> None:
    """Answers once all of the request is here."""
    await call.ended.wait()
    await call.answer()


class Served:
    """One connection of a client."""

    def __init__(self, source: "Http2Source", writer: asyncio.StreamWriter) -> None:
        self._source = source
        self.writer = writer
        self.h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = source.streams
        self.h2.local_settings.acknowledge()
        self.h2.initiate_connection()
        self.calls: dict[int, Call] = {}
        self.most = 0
        """The most requests that were under way at once."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._credited = asyncio.Event()
        self.over = asyncio.Event()
        self.silent = False
        """Whether the server sends nothing any more."""

    async def serve(self, reader: asyncio.StreamReader) -> None:
        try:
            self.flush()
            while data := await reader.read(65536):
                for event in self.h2.receive_data(data):
                    self._note(event)
                self.flush()
        except ProtocolError as error:
            self._source.faults.append(error)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.over.set()
            for call in self.calls.values():
                call.gone.set()
            self._credited.set()
            for task in self._tasks:
                task.cancel()
            self.writer.close()

    def flush(self) -> None:
        if self.silent:
            return
        if (data := self.h2.data_to_send()) and not self.over.is_set():
            self.writer.write(data)

    async def credited(self) -> None:
        self._credited.clear()
        await self._credited.wait()

    def go_away(self, last: int, code: int = 0) -> None:
        """Tells the client that streams above `last` were not read, and serves the others on."""
        payload = last.to_bytes(4, "big") + code.to_bytes(4, "big")
        self.writer.write(b"\0\0\x08\x07\0\0\0\0\0" + payload)

    def _note(self, event: Event) -> None:
        stream = getattr(event, "stream_id", 0) or 0
        if isinstance(event, WindowUpdated):
            self._credited.set()
        if isinstance(event, RequestReceived):
            new = Call(self, stream, list(event.headers))
            self.calls[stream] = new
            self._source.calls.append(new)
            open_now = [each for each in self.calls.values() if not each.ended.is_set()]
            self.most = max(self.most, len(open_now))
            task = asyncio.get_running_loop().create_task(self._run(new))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        call = self.calls.get(stream)
        if call is None:
            return
        if isinstance(event, DataReceived):
            call.body += event.data
            if self._source.credits:
                self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
            else:
                call.unread += event.flow_controlled_length
        elif isinstance(event, TrailersReceived):
            call.trailers = list(event.headers)
        elif isinstance(event, StreamEnded):
            call.ended.set()
        elif isinstance(event, StreamReset):
            call.reset = int(event.error_code)
            call.gone.set()
            self._credited.set()

    async def _run(self, call: Call) -> None:
        try:
            await self._source.script(call)
        except ProtocolError as error:  # the client has reset the stream meanwhile
            if not call.gone.is_set():
                self._source.faults.append(error)


@dataclass
class Http2Source:
    """The requests that arrived, and the answers."""

    script: Script = answers
    streams: int = 100
    """The most requests that a connection takes at once."""
    credits: bool = True
    """Whether clients get credit for the bodies that arrive."""
    calls: list[Call] = field(default_factory=list)
    connections: list[Served] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    """What clients did against the protocol."""
    port: int = 0

    @property
    def targets(self) -> list[str]:
        return [each.target for each in self.calls]

    @property
    def open(self) -> int:
        """The number of connections that are open."""
        return sum(not each.over.is_set() for each in self.connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = Served(self, writer)
        self.connections.append(served)
        await served.serve(reader)


@asynccontextmanager
async def http2_source(
    script: Script = answers,
    *,
    streams: int = 100,
    tls: ssl.SSLContext | None = None,
    port: int = 0,
) -> AsyncIterator[Http2Source]:
    made = Http2Source(script, streams)
    server = await asyncio.start_server(made.serve, "127.0.0.1", port, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for served in made.connections:
            served.writer.close()
