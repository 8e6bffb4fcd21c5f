"""One connection to a data source: aiohttp's client protocol, without what a proxy never needs, and
with a check that nothing of one response is left for the next request.

Knows bytes, and where a response ends. Knows nothing of what is sent.
"""

import asyncio
from typing import Protocol

import aiohttp
from aiohttp import EMPTY_PAYLOAD
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import EMPTY_BODY_STATUS_CODES, TimerNoop

from sidecar.proxy.limits import ProxyLimits

_TIMER = TimerNoop()
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class ResponseInterceptor(Protocol):
    """Sees the start of a response before the parser does."""

    def intercept(self, data: bytes) -> bool:
        """Takes the first bytes. True if the parser needn't see them."""
        ...

    def fall_back(self) -> None:
        """The connection was lost before any byte arrived."""
        ...


class UpstreamConnection(ResponseHandler):
    """Writes requests, and reads responses with aiohttp's parser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ProxyLimits) -> None:
        super().__init__(loop)
        self._limits = limits
        self._reads_bodies: bool | None = None
        self.lease: Connection | None = None
        """aiohttp's handle for the connection, while the pool owns it."""
        self.idle_since = 0.0
        """When it last became idle, by the loop's clock."""
        self.reused = False
        """Whether it has carried a request before the current one."""
        self.received_any = False
        """Whether any byte has arrived since the current request was sent."""
        self.idle = False
        self.interceptor: ResponseInterceptor | None = None
        self._fed = self._head_size = 0
        """The number of response bytes that the parser got, and how many of them are the head."""
        self._last_bytes = b""
        self._chunked = False
        self._flow_was_paused = False

    def expect(self, *, body: bool) -> None:
        """Prepares for the next response. It has no `body` if it answers a HEAD."""
        self._fed = self._head_size = 0
        self._last_bytes, self._payload = b"", None
        if body and self._reads_bodies:
            return  # one setup of the parser serves one response after the other
        self._reads_bodies = body
        limits = self._limits
        # Bodies are relayed as they were sent, so the parser must not decompress them.
        self.set_response_params(
            timer=_TIMER,
            skip_payload=not body,
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=limits.buffer_bytes,
            max_line_size=limits.response_field_bytes,
            max_field_size=limits.response_field_bytes,
            max_headers=limits.fields,
        )

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("the connection was closed")
        transport.write(data)

    async def drain(self) -> None:
        """Waits until the data source has taken enough of what was written."""
        await self._drain_helper()

    def data_received(self, data: bytes) -> None:
        """Like aiohttp's method, without its timers between reads and its WebSocket support."""
        self.received_any = True
        if self.idle:
            # These bytes were not asked for, and the next request would take them for its response.
            self.force_close()
            return
        interceptor = self.interceptor
        # Removed first: it sees the first bytes only, and sets itself again if it needs more.
        if interceptor is not None:
            self.interceptor = None
            if interceptor.intercept(data):
                return
        if self._parser is None or self._upgraded:
            super().data_received(data)
            return
        self._track_end(data)
        try:
            messages, self._upgraded, _ = self._parser.feed_data(data)
        except Exception as error:  # noqa: BLE001  # raised again where the response is awaited
            if self.transport is not None:
                self.transport.close()
            self.set_exception(aiohttp.ClientPayloadError("the response can't be parsed"), error)
            return
        for message, body in messages:
            if message.should_close:
                self._should_close = True
            self._payload, self._chunked = body, message.chunked
            empty = self._skip_payload or message.code in EMPTY_BODY_STATUS_CODES
            self.feed_data((message, EMPTY_PAYLOAD if empty else body))

    def _track_end(self, data: bytes) -> None:
        if not self._head_size:
            at = (self._last_bytes + data).find(_HEAD_END)
            if at >= 0:
                self._head_size = self._fed - len(self._last_bytes) + at + len(_HEAD_END)
        self._fed += len(data)
        # Enough of the end to recognise a last chunk or the end of the head that is split between
        # reads.
        recent = data if len(data) > 4 else self._last_bytes + data
        self._last_bytes = recent[-len(_LAST_CHUNK) :]

    @property
    def fully_consumed(self) -> bool:
        """Whether nothing has arrived beyond the response that was read. The parser would hold back
        the beginning of a further response, and the next request would get it (response smuggling).
        In doubt, False."""
        # After trailers, the last bytes differ: such a connection isn't used again.
        if self._chunked and self._fed:
            return self._last_bytes == _LAST_CHUNK
        body = 0 if self._payload is None else self._payload.total_bytes
        return self._fed == self._head_size + body

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        interceptor, self.interceptor = self.interceptor, None
        if interceptor is not None:
            interceptor.fall_back()

    def pause_reading(self) -> None:
        self._flow_was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # As in `sidecar.http.connection`: a pause after the last chunk of a body makes the parser
        # stop in the next body, so from the first pause on every read makes it continue.
        if self._flow_was_paused:
            super().resume_reading(resume_parser)
