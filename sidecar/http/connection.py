"""aiohttp's low-level HTTP server, with the behaviour we promise where it has another by default:
what the sidecar's own ports and its proxy listeners share.

aiohttp's connection starts a task, builds a request, a response and two multi-dictionaries for
every message; for answers as small and as alike as ours that is most of the time. `HttpConnection`
keeps its parsing, flow control and shutdown, and replaces the part between a message and an answer.
It stands on names that aiohttp keeps to itself: the lock file pins the version they were read in.

Knows connections. Knows neither routes nor what an answer looks like.
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
    """One message of a client's, and its body as it arrives."""

    __slots__ = ("_connection", "body", "headers", "message")

    def __init__(
        self, message: RawRequestMessage, body: StreamReader, connection: "HttpConnection"
    ) -> None:
        self.message = message
        self.headers = message.headers
        self.body = body
        self._connection = connection

    def _cancel(self, error: BaseException) -> None:
        # aiohttp calls this when the connection is lost: whoever reads the body must know.
        if self.body is not EMPTY_PAYLOAD:
            self.body.set_exception(error)


class HttpConnection(RequestHandler):
    """One client's connection: answers its messages one after the other, in their order."""

    __slots__ = ("_flow_was_paused",)

    def __init__(self, manager: Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._flow_was_paused = False

    def write(self, data: bytes) -> None:
        """Raises `ConnectionResetError` where the client is gone."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client closed the connection")
        transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Gives `data` to the parser. Empty data makes it go on with what it holds back."""
        closing = self._close and not self._force_close and not self._complete()
        if closing:
            # aiohttp drops what arrives from here on. A body that has begun must still come in.
            self._close = False
        super().data_received(data)
        self._close = self._close or closing
        # The parser reports broken framing to the connection, not to the reader of the body.
        if self._broken():
            for body in self._pending_bodies():
                if not body.is_eof() and body.exception() is None:
                    body.set_exception(RequestPayloadError("the body's framing is broken"))
        self._limit_queued_bytes()

    def pause_reading(self) -> None:
        self._flow_was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # A body's reader calls this after every read, and aiohttp then runs the parser over no
        # data. That is needed only once reading was paused; from then on always: a pause behind
        # the last chunk of a body makes the parser stop in the next body, when reading has long
        # been resumed, and the parser doesn't tell that it holds anything back.
        if self._flow_was_paused:
            super().resume_reading(resume_parser)

    def continue_parsing(self) -> None:
        """Has the parser read what it holds back: it stops once 32 requests wait to be taken."""
        if self._parser is not None and not self._upgraded:
            self.data_received(b"")

    async def start(self) -> None:
        """Answers what is due until the connection ends; aiohttp runs this as the connection's one
        task, and closes it through `close`, `force_close` and `shutdown`."""
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
            if self._keepalive_handle is None:
                self._keepalive_handle = self._loop.call_at(
                    self._next_keepalive_close_time, self._process_keepalive
                )
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    def _has_pending(self) -> bool:
        """Whether `_serve_next` has something to do."""
        return bool(self._messages)

    async def _serve_next(self) -> bool:
        """Answer what is due; whether the connection may carry another request."""
        message, body = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused:
            if len(self._messages) <= self._msg_queue_resume_size and self._queue_is_small():
                self._resume_reading_if_drained()
        elif not self._messages and isinstance(message, RawRequestMessage):
            # The parser counts a request once it is whole, so one with a late body is counted
            # after it was taken: the parser then stops before the queue is full.
            self.continue_parsing()
        return await self._respond(message, body)

    async def _respond(self, message: object, body: StreamReader) -> bool:
        """Answer one message, which is no `RawRequestMessage` where the parser could not read it;
        whether the connection may carry another."""
        raise NotImplementedError

    async def _drain_body(self, body: StreamReader, seconds: float = LINGERING_SECONDS) -> bool:
        """Read away what a refused request still sends, for a while: a connection that is closed
        with bytes unread is reset, and the client may lose the refusal."""
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
        """Pauses reading while the requests behind the first one hold much. aiohttp limits their
        number and the size of each, which would add up to megabytes."""
        if len(self._messages) > 1 and not self._buffer_paused and not self._queue_is_small():
            self._pause_reading_for_buffer()

    def _queue_is_small(self) -> bool:
        return sum(body.total_bytes for _, body in self._messages) <= self._read_bufsize

    def _broken(self) -> bool:
        """Whether the parser has met something that it can't read; it reads no further."""
        return bool(self._messages) and isinstance(self._messages[-1][0], _ErrInfo)

    def _complete(self) -> bool:
        """Whether all that has begun has arrived whole, or broke off."""
        return all(body.is_eof() or body.exception() is not None for body in self._pending_bodies())

    def _pending_bodies(self) -> list[StreamReader]:
        """Of the requests that are being answered, or wait for it."""
        bodies = [body for _, body in self._messages]
        request: Any = self._current_request
        return bodies if request is None else [request.body, *bodies]
