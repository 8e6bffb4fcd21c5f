"""A client of HTTP/2 over a stream of asyncio, by the library `h2`."""

import asyncio
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

Fields = list[tuple[str, str]]


@dataclass
class Exchange:
    """What came of one request. `reset` is the code of the stream's reset."""

    status: int = 0
    fields: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    ended: bool = False
    reset: int | None = None

    @property
    def over(self) -> bool:
        return self.ended or self.reset is not None


class Http2Client:
    """`reader` and `writer` are a connection whose next bytes may be HTTP/2's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.h2 = H2Connection(
            H2Configuration(
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.initiate_connection()
        self.exchanges: dict[int, Exchange] = {}
        self.terminated: ConnectionTerminated | None = None

    def begin(
        self,
        path: str,
        *fields: tuple[str, str],
        method: str = "GET",
        host: str = "kb.test",
        scheme: str = "http",
        body: bytes | None = None,
        end: bool = True,
    ) -> int:
        """Begins a request, and returns its stream. Without `end`, more of the body follows."""
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", scheme), (":authority", host), (":path", path)]
        self.exchanges[stream] = Exchange()
        self.h2.send_headers(stream, [*head, *fields], end_stream=end and body is None)
        if body is not None:
            self.h2.send_data(stream, body, end_stream=end)
        return stream

    async def ask(self, path: str, *fields: tuple[str, str], **more: object) -> Exchange:
        """Makes one request, and returns what came of it."""
        stream = self.begin(path, *fields, **more)  # type: ignore[arg-type]
        return await self.result(stream)

    async def result(self, stream: int) -> Exchange:
        exchange = self.exchanges[stream]
        while not exchange.over and self.terminated is None:
            if not await self.exchange():
                break
        return exchange

    async def exchange(self) -> bool:
        """Sends what is to be sent, and reads once. False if nothing more arrives."""
        self.flush()
        await self._writer.drain()
        data = await asyncio.wait_for(self._reader.read(65536), 30)
        for event in self.h2.receive_data(data) if data else []:
            self._note(event)
        self.flush()
        return bool(data)

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self._writer.write(data)

    def _note(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.terminated = event
            return
        stream = getattr(event, "stream_id", None)
        exchange = self.exchanges.get(stream or 0)
        if exchange is None:
            return
        if isinstance(event, ResponseReceived):
            exchange.fields = dict(event.headers)
            exchange.status = int(exchange.fields[b":status"])
        elif isinstance(event, DataReceived):
            exchange.body += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, TrailersReceived):
            exchange.trailers = dict(event.headers)
        elif isinstance(event, StreamEnded):
            exchange.ended = True
        elif isinstance(event, StreamReset):
            exchange.reset = int(event.error_code)
