"""aiohttp's low-level HTTP server, with the behaviour we promise where it has another by default:
what the sidecar's own ports and its proxy listeners share.

aiohttp's connection starts a task, builds a request, a response and two multi-dictionaries for
every message; for answers as small and as alike as ours that is most of the time. `Connection`
keeps its parsing, flow control and shutdown, and replaces the part between a message and an answer.
It stands on names that aiohttp keeps to itself: the lock file pins the version they were read in.

Knows connections. Knows neither routes nor what an answer looks like.
"""

import asyncio
from typing import Any

from aiohttp import EMPTY_PAYLOAD, ClientError, StreamReader
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo

LINGERING_SECONDS = 2.0


class Request:
    """One message of a client's, and its body as it arrives."""

    __slots__ = ("_connection", "body", "headers", "message")

    def __init__(
        self, message: RawRequestMessage, body: StreamReader, connection: "Connection"
    ) -> None:
        self.message = message
        self.headers = message.headers
        self.body = body
        self._connection = connection

    def _cancel(self, error: BaseException) -> None:
        # aiohttp calls this when the connection is lost: whoever reads the body must know.
        if self.body is not EMPTY_PAYLOAD:
            self.body.set_exception(error)


class Connection(RequestHandler):
    """One client's connection: answers its messages one after the other, in their order."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """Raises `ConnectionResetError` where the client is gone."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client closed the connection")
        transport.write(data)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Where a body's framing breaks, the parser tells the connection, and not whoever reads it.
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            for body in self._bodies():
                if not body.is_eof() and body.exception() is None:
                    body.set_exception(RequestPayloadError("the body's framing is broken"))

    def resume_reading(self, resume_parser: bool = True) -> None:
        # A body's reader calls this whenever it is empty; unless reading was paused there is
        # nothing to resume, and aiohttp would run the parser over nothing.
        if self._reading_paused:
            super().resume_reading(resume_parser)

    async def start(self) -> None:
        """Answers what is due until the connection ends; aiohttp runs this as the connection's one
        task, and closes it through `close`, `force_close` and `shutdown`."""
        while not self._force_close:
            while not self._due():
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            if not await self._next():
                break
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
            if self._keepalive_handle is None:
                self._keepalive_handle = self._loop.call_at(
                    self._next_keepalive_close_time, self._process_keepalive
                )
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    def _due(self) -> bool:
        """Whether `_next` has something to do."""
        return bool(self._messages)

    async def _next(self) -> bool:
        """Answer what is due; whether the connection may carry another request."""
        message, body = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        return await self._answered(message, body)

    async def _answered(self, message: object, body: StreamReader) -> bool:
        """Answer one message, which is no `RawRequestMessage` where the parser could not read it;
        whether the connection may carry another."""
        raise NotImplementedError

    async def _drained(self, body: StreamReader, seconds: float = LINGERING_SECONDS) -> bool:
        """Read away what a refused request still sends, for a while: a connection that is closed
        with bytes unread is reset, and the client may lose the refusal."""
        if body.is_eof():
            return True
        try:
            async with asyncio.timeout(seconds):
                while not body.is_eof():
                    await body.readany()
        except (TimeoutError, RequestPayloadError, ClientError, ConnectionError):
            return False
        return True

    def _bodies(self) -> list[StreamReader]:
        """Of the requests that are being answered, or wait for it."""
        bodies = [body for _, body in self._messages]
        request: Any = self._current_request
        return bodies if request is None else [request.body, *bodies]
