"""A server-side HTTP/1 connection, shared by the sidecar's own ports and its proxy listeners.

It subclasses aiohttp's low-level connection. For every message, aiohttp builds a request, a
response and two multi-dictionaries; for responses as small and uniform as ours that takes most of
the time. `HttpConnection` keeps aiohttp's parsing, flow control and shutdown, and replaces the part
between a message and its response. It relies on private names of aiohttp; the lock file pins the
version they were checked against.

Knows connections. Knows neither routes nor what a response looks like.
"""

import asyncio
from typing import Any

from aiohttp import EMPTY_PAYLOAD, ClientError, StreamReader
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo
from aiohttp.web_server import Server

from policies.ground.errors import SluiceError

LINGERING_SECONDS = 2.0


class HttpRequest:
    """One request message, and its body as it arrives."""

    __slots__ = ("_connection", "body", "headers", "message")

    def __init__(
        self, message: RawRequestMessage, body: StreamReader, connection: "HttpConnection"
    ) -> None:
        self.message = message
        self.headers = message.headers
        self.body = body
        self._connection = connection

    def _cancel(self, error: BaseException) -> None:
        # aiohttp calls this when the connection is lost; the reader of the body must notice.
        if self.body is not EMPTY_PAYLOAD:
            self.body.set_exception(error)


class HttpConnection(RequestHandler):
    """One client's connection. Answers its requests one at a time, in order."""

    __slots__ = ("_flow_was_paused",)

    def __init__(self, manager: Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._flow_was_paused = False

    def verify_settings(self, **expected: float) -> None:
        """Raise `RuntimeError` unless aiohttp applied these settings and leaves bodies as they
        arrive. Feeds the parser a request, so the connection must not be used afterwards."""
        # Another version may ignore them, and running without limits is worse than not starting.
        parser = self._parser
        assert parser is not None
        [(_, body)], _, _ = parser.feed_data(
            b"POST / HTTP/1.1\r\nHost: self-check\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: 5\r\n\r\nplain"
        )
        # `plain` is not gzip: if aiohttp tried to inflate it, the body would hold an exception.
        inflated = type(body) is not StreamReader or body.exception() is not None
        if inflated or any(getattr(self, name) != value for name, value in expected.items()):
            raise RuntimeError(
                "aiohttp did not apply the server's settings: install the version in "
                "requirements.lock"
            )

    def write(self, data: bytes) -> None:
        """Raises `ConnectionResetError` if the client has closed the connection."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client closed the connection")
        transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Feed `data` to the parser. Empty data makes it continue with what it has buffered."""
        closing = self._close and not self._force_close and not self._bodies_settled()
        if closing:
            # aiohttp drops data once `_close` is set, but a body that has begun must still arrive.
            self._close = False
        super().data_received(data)
        self._close = self._close or closing
        # aiohttp reports broken framing to the connection, not to the reader of the body.
        if self._parser_failed():
            for body in self._pending_bodies():
                if not body.is_eof() and body.exception() is None:
                    body.set_exception(RequestPayloadError("the body's framing is broken"))
        self._limit_queued_bytes()

    def pause_reading(self) -> None:
        self._flow_was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # A body's reader calls this after every read, and aiohttp then runs the parser on empty
        # data. That is needed only after reading was paused once, but from then on always: a pause
        # right after a body's last chunk stops the parser inside the next body, long after reading
        # was resumed, and the parser doesn't report that it has data buffered.
        if self._flow_was_paused:
            super().resume_reading(resume_parser)

    def continue_parsing(self) -> None:
        """Make the parser read its buffered data: it stops while 32 requests are queued."""
        if self._parser is not None and not self._upgraded:
            self.data_received(b"")

    async def start(self) -> None:
        """Answer requests until the connection ends. aiohttp runs this as the connection's only
        task, and ends it through `close`, `force_close` and `shutdown`."""
        while not self._force_close:
            while not self._has_pending():
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            if not await self._serve_next():
                break
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
            # One timer serves all requests: if it fires too early, aiohttp sets it again.
            if self._keepalive_handle is None:
                self._keepalive_handle = self._loop.call_at(
                    self._next_keepalive_close_time, self._process_keepalive
                )
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    def _has_pending(self) -> bool:
        """Whether `_serve_next` has work to do."""
        return bool(self._messages)

    async def _serve_next(self) -> bool:
        """Answer the next request. Returns whether the connection may carry another one."""
        message, body = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused:
            if len(self._messages) <= self._msg_queue_resume_size and self._queue_is_small():
                self._resume_reading_if_drained()
        elif not self._messages and isinstance(message, RawRequestMessage):
            # The parser counts a request when its body is complete. One whose body came late is
            # counted after it left the queue, so the parser would stop before the queue is full.
            self.continue_parsing()
        return await self._respond(message, body)

    async def _respond(self, message: object, body: StreamReader) -> bool:
        """Answer one message; it is not a `RawRequestMessage` if the parser failed on it. Returns
        whether the connection may carry another request."""
        raise NotImplementedError

    async def _drain_body(self, body: StreamReader, seconds: float = LINGERING_SECONDS) -> bool:
        """Discard what a refused request still sends, for at most `seconds`. Returns whether the
        body ended."""
        # Closing a socket with unread bytes resets the connection, and the client could lose the
        # refusal.
        if body.is_eof():
            return True
        try:
            async with asyncio.timeout(seconds):
                while not body.is_eof():
                    await body.readany()
        except (TimeoutError, RequestPayloadError, ClientError, ConnectionError, SluiceError):
            return False
        return True

    def _limit_queued_bytes(self) -> None:
        """Pause reading while the queued requests hold many bytes. aiohttp limits only their number
        and each one's size, which adds up to megabytes."""
        if len(self._messages) > 1 and not self._buffer_paused and not self._queue_is_small():
            self._pause_reading_for_buffer()

    def _queue_is_small(self) -> bool:
        return sum(body.total_bytes for _, body in self._messages) <= self._read_bufsize

    def _parser_failed(self) -> bool:
        """Whether the parser met data that it can't parse; it reads no further."""
        return bool(self._messages) and isinstance(self._messages[-1][0], _ErrInfo)

    def _bodies_settled(self) -> bool:
        """Whether every body that has begun is complete or failed."""
        return all(body.is_eof() or body.exception() is not None for body in self._pending_bodies())

    def _pending_bodies(self) -> list[StreamReader]:
        """The bodies of the current request and of the queued ones."""
        bodies = [body for _, body in self._messages]
        request: Any = self._current_request
        return bodies if request is None else [request.body, *bodies]
