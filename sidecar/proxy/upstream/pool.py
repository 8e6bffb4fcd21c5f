"""Connections to one data source, kept open between requests.

aiohttp's connector opens them (`dialler.py`), and says how many there may be; it also keeps them,
at a cost per request that a proxy of one destination need not pay. So those in use and those at
rest are its own "in use" here.

Knows connections. Knows nothing of what is sent.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any, Protocol

import aiohttp
from aiohttp import EMPTY_PAYLOAD
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import EMPTY_BODY_STATUS_CODES, TimerNoop

from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.upstream.dialler import Dialler

_TIMER = TimerNoop()
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class Short(Protocol):
    """Who is told of an answer before the parser is."""

    def arrived(self, data: bytes) -> bool:
        """The first bytes of the answer; whether they were all of it."""
        ...

    def unsure(self) -> None:
        """The connection was lost before any came."""
        ...


class UpstreamConnection(ResponseHandler):
    """One connection to the data source: what is written to it, and aiohttp's reading side."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ProxyLimits) -> None:
        super().__init__(loop)
        self._limits = limits
        self._reads_bodies: bool | None = None
        self.connection: Connection | None = None
        """aiohttp's hold on it, while it is ours."""
        self.rested = 0.0
        """When it was last laid to rest, by the loop's clock."""
        self.reused = False
        """Whether it has carried a request before the present one."""
        self.heard = False
        """Whether any byte has come since the present request was sent."""
        self.at_rest = False
        self.short: Short | None = None
        """Who is told of the answer before the parser is."""
        self._fed = self._head = 0
        """How many bytes of the answer the parser got, and how many are its head."""
        self._end = b""
        """The last of them."""
        self._chunked = False
        self._flow_was_paused = False

    def expect(self, *, body: bool) -> None:
        """An answer is next, with a body or, to a HEAD, without one."""
        self._fed = self._head = 0
        self._end, self._payload = b"", None
        if body and self._reads_bodies:
            return  # the parser reads one answer after the other
        self._reads_bodies = body
        limits = self._limits
        self.set_response_params(
            timer=_TIMER,
            skip_payload=not body,
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=limits.buffer_bytes,
            max_line_size=limits.answer_field_bytes,
            max_field_size=limits.answer_field_bytes,
            max_headers=limits.fields,
        )

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("the connection was closed")
        transport.write(data)

    def data_received(self, data: bytes) -> None:
        """aiohttp's, without what a proxy never asks for: timers between reads, web sockets."""
        self.heard = True
        if self.at_rest:
            # Nobody asked. Whoever has this connection next would take it for the answer.
            self.force_close()
            return
        short = self.short
        if short is not None:
            self.short = None
            if short.arrived(data):
                return
        if self._parser is None or self._upgraded:
            super().data_received(data)
            return
        self._follow(data)
        try:
            messages, self._upgraded, _ = self._parser.feed_data(data)
        except Exception as error:  # noqa: BLE001  # raised where the answer is waited for
            if self.transport is not None:
                self.transport.close()
            self.set_exception(aiohttp.ClientPayloadError("the answer can't be parsed"), error)
            return
        for message, body in messages:
            if message.should_close:
                self._should_close = True
            self._payload, self._chunked = body, message.chunked
            empty = self._skip_payload or message.code in EMPTY_BODY_STATUS_CODES
            self.feed_data((message, EMPTY_PAYLOAD if empty else body))

    def _follow(self, data: bytes) -> None:
        if not self._head:
            at = (self._end + data).find(_HEAD_END)
            if at >= 0:
                self._head = self._fed - len(self._end) + at + len(_HEAD_END)
        self._fed += len(data)
        self._end = (data if len(data) > 4 else self._end + data)[-len(_LAST_CHUNK) :]

    @property
    def even(self) -> bool:
        """Whether the answer that was read is all that has arrived. The parser would keep the
        beginning of another to itself, and whoever asks next would get that. In doubt, no."""
        if self._chunked and self._fed:
            return self._end == _LAST_CHUNK
        body = 0 if self._payload is None else self._payload.total_bytes
        return self._fed == self._head + body

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        short, self.short = self.short, None
        if short is not None:
            short.unsure()

    def pause_reading(self) -> None:
        self._flow_was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # As in `sidecar.http.connection`: a pause behind the last chunk of a body makes the parser
        # stop in
        # the next one, so from the first pause on every read has it go on.
        if self._flow_was_paused:
            super().resume_reading(resume_parser)


class Pool:
    """At most `limits.connections`, opened by `dialler`."""

    def __init__(self, dialler: Dialler, limits: ProxyLimits) -> None:
        self._dialler = dialler
        self._limits = limits
        self._resting: deque[UpstreamConnection] = deque()
        self._held = 0
        self._waiting = 0
        self._sweeping: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Opens no connection yet: a data source that is away does not keep the sidecar from
        starting."""
        self._loop = asyncio.get_running_loop()
        self._dialler.open()
        made: Any = partial(UpstreamConnection, self._loop, self._limits)
        assert self._dialler.connector is not None
        self._dialler.connector._factory = made

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._resting:
            self.discard(self._resting.pop())
        await self._dialler.close()

    @property
    def connections(self) -> int:
        """How many are open, in use or at rest."""
        return self._held

    def resting(self) -> UpstreamConnection | None:
        """A connection that is there, of the caller's own, to be given back or discarded."""
        while self._resting:
            wire = self._resting.pop()
            # One on which something arrived that nobody had asked for would give this request
            # another one's answer.
            if not wire.should_close and not self._stale(wire) and wire.is_connected():
                wire.reused, wire.heard, wire.at_rest = True, False, False
                return wire
            self.discard(wire)
        return None

    async def connect(self) -> UpstreamConnection:
        """A new connection, as `resting`. `UpstreamFailed` where there is none to be had."""
        self._waiting += 1
        try:
            connection = await self._dialler.connect()
        finally:
            self._waiting -= 1
        made = connection.protocol
        assert isinstance(made, UpstreamConnection)
        made.connection = connection
        self._held += 1
        return made

    def give_back(self, wire: UpstreamConnection) -> None:
        """The answer was read to its end, and nothing is left of the request."""
        if wire.should_close or not wire.is_connected() or not wire.even:
            self.discard(wire)
        elif self._waiting and self._held >= self._limits.connections:
            # Somebody waits at the limit: only the connector can wake them.
            assert wire.connection is not None
            wire.connection.release()
            wire.connection = None
            self._held -= 1
        else:
            wire.rested, wire.at_rest = self._loop.time(), True
            self._resting.append(wire)
            if self._sweeping is None:
                self._sweep_later()

    def tunnel(self, wire: UpstreamConnection, tail: bytes) -> BufferedConnection:
        """Its connection as the other end of a tunnel, with what has arrived already."""
        connection, wire.connection = wire.connection, None
        transport = wire.transport
        assert connection is not None
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("the connection was closed")
        self._held -= 1

        def lost(_exc: Exception | None) -> None:
            connection.close()

        side = BufferedConnection(self._limits.buffer_bytes, lost).adopt(transport, tail)
        side.transport.resume_reading()
        return side

    def discard(self, wire: UpstreamConnection) -> None:
        """Breaks the connection, which is how the data source learns that nobody listens."""
        connection, wire.connection = wire.connection, None
        wire.short = None
        wire.abort()
        if connection is not None:
            self._held -= 1
            connection.close()

    def _stale(self, wire: UpstreamConnection) -> bool:
        return self._loop.time() - wire.rested > self._limits.upstream_idle_seconds

    def _sweep_later(self) -> None:
        self._sweeping = self._loop.call_later(self._limits.upstream_idle_seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        while self._resting and self._stale(self._resting[0]):
            self.discard(self._resting.popleft())
        if self._resting:
            self._sweep_later()
