"""aiohttp's low-level HTTP server, with the behaviour we promise where it has another by default.

A request that can't be parsed is answered with our error body and no echo of what was sent. A head
that does not arrive in time, or an idle connection, is cut off. A half-closed client (`nc`, some
SDKs) still gets its answer. Bodies are not inflated. A client that hangs up takes nothing back:
what it asked for is decided and recorded all the same.

aiohttp's connection starts a task, builds a request, a response and two multi-dictionaries for
every message; for answers as small and as alike as ours that is most of the time. `Connection`
keeps its parsing, flow control and shutdown, and replaces the part between a message and an answer.
It stands on names that aiohttp keeps to itself: the lock file pins the version they were read in.

Knows connections. Knows no route.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import EMPTY_PAYLOAD, ClientError, StreamReader
from aiohttp.http import RawRequestMessage
from aiohttp.web import BaseRequest, RequestHandler, RequestPayloadError, StreamResponse
from aiohttp.web import Server as AiohttpServer
from aiohttp.web_protocol import _ErrInfo

from policies.ground.listen import Listen

KEEPALIVE_SECONDS = 60.0
LINGERING_SECONDS = 2.0
MAX_LINE = 8190
MAX_HEADERS = 128

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


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

    def welcome_body(self) -> None:
        """Tell a client that waits before it sends its body to go on."""
        self._connection.write(_CONTINUE)

    def _cancel(self, error: BaseException) -> None:
        # aiohttp calls this when the connection is lost: whoever reads the body must know.
        if self.body is not EMPTY_PAYLOAD:
            self.body.set_exception(error)


class Answer(NamedTuple):
    """What is written for one request: a head without its last line, and a body."""

    head: bytes
    body: bytes
    close: bool = False
    """Whether the connection must not carry another request."""


Handle = Callable[[Request], Awaitable[Answer]]
"""Answers any request and raises nothing."""

Refuse = Callable[[], Answer]
"""The answer to what the parser could not read."""


class Connection(RequestHandler):
    """One client's connection: answers its messages one after the other, in their order."""

    __slots__ = ("_handle", "_refuse")

    _handle: Handle
    _refuse: Refuse

    def write(self, data: bytes) -> None:
        """Raises `ConnectionResetError` where the client is gone."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client closed the connection")
        transport.write(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes an answer
        """Whether to keep the sending side open: all that the client sent is here, and waits for
        an answer."""
        bodies = self._bodies()
        if not bodies or not all(body.is_eof() for body in bodies):
            return False
        if len(bodies) == 1:
            self.close()  # once it is answered
        return True

    def _bodies(self) -> list[StreamReader]:
        """Of the requests that are being answered, or wait for it."""
        bodies = [body for _, body in self._messages]
        if self._current_request is not None:
            bodies.append(self._current_request.body)  # type: ignore[attr-defined]  # a `Request`
        return bodies

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
        """Answers messages until the connection ends; aiohttp runs this as the connection's one
        task, and closes it through `close`, `force_close` and `shutdown`."""
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            message, body = self._messages.popleft()
            self._make_room()
            if not await self._answered(message, body):
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

    async def _answered(self, message: object, body: StreamReader) -> bool:
        """Whether the connection may carry another request."""
        self._request_in_progress = True
        try:
            if not isinstance(message, RawRequestMessage):
                return await self._send(self._refuse(), empty=False, old=False, keep=False)
            request = Request(message, body, self)
            self._current_request = request  # type: ignore[assignment]  # its `_cancel` is used
            answer = await self._handle(request)
            # RFC 9931: what follows CONNECT or Upgrade, neither of which is ever granted here, may
            # be an optimistic client's tunnelled bytes, and is no request of this client.
            tunnel = message.upgrade or message.method == "CONNECT"
            keep = not (message.should_close or answer.close or self._close or tunnel)
            keep = await self._send(
                answer, empty=message.method == "HEAD", old=message.version[1] == 0, keep=keep
            )
            return await self._drained(body) and keep
        except ConnectionError:
            return False
        finally:
            self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)

    async def _send(self, answer: Answer, *, empty: bool, old: bool, keep: bool) -> bool:
        if not keep:
            ending = b"Connection: close\r\n\r\n"
        elif old:
            ending = b"Connection: keep-alive\r\n\r\n"
        else:
            ending = b"\r\n"
        self.write(b"%b%b%b" % (answer.head, ending, b"" if empty else answer.body))
        if self._paused:
            # A client that does not read must not pile up answers in our memory.
            await self._drain_helper()
        return keep

    async def _drained(self, body: StreamReader) -> bool:
        """Read away what a refused request still sends, for a while: a connection that is closed
        with bytes unread is reset, and the client may lose the refusal."""
        if body.is_eof():
            return True
        try:
            async with asyncio.timeout(LINGERING_SECONDS):
                while not body.is_eof():
                    await body.readany()
        except (TimeoutError, RequestPayloadError, ClientError, ConnectionError):
            return False
        return True

    def _make_room(self) -> None:
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()


class Server(AiohttpServer):
    """Listens, and makes connections that answer by `handle` and `refuse`."""

    def __init__(self, listen: Listen, handle: Handle, refuse: Refuse) -> None:
        super().__init__(_unused)
        self._listen = listen
        self._handle = handle
        self._refuse = refuse
        self._listening: asyncio.Server | None = None

    def __call__(self) -> Connection:
        # aiohttp's own drops every setting, limits included, when it is given one it doesn't know.
        connection = Connection(
            self,
            loop=self._loop,
            access_log=None,  # type: ignore[arg-type]  # which aiohttp takes for "none"
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
        )
        connection._handle = self._handle
        connection._refuse = self._refuse
        return connection

    async def start(self) -> None:
        """Open the port. Raises `OSError` where it is taken."""
        self._prove_settings()
        self._listening = await self._loop.create_server(
            self, self._listen.host, self._listen.port, backlog=1024
        )

    @property
    def address(self) -> Listen:
        """Where it listens, with the port that the system chose for 0."""
        assert self._listening is not None
        host, port = self._listening.sockets[0].getsockname()[:2]
        return Listen(host, port)

    async def close(self, seconds: float) -> None:
        """Accept nothing more, let what is under way finish for `seconds`, then end it."""
        if self._listening is not None:
            self._listening.close()
        self.pre_shutdown()
        await self.shutdown(seconds)

    def _prove_settings(self) -> None:
        """Another aiohttp may take other settings: better not to start than to run without."""
        made = self()
        parser = made._parser
        assert parser is not None
        kept = (made.keepalive_timeout, made.max_line_size, made.max_field_size, made.max_headers)
        [(_, body)], _, _ = parser.feed_data(
            b"POST / HTTP/1.1\r\nHost: self-check\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: 5\r\n\r\nplain"
        )
        inflated = body.read_nowait() != b"plain"
        if inflated or kept != (KEEPALIVE_SECONDS, MAX_LINE, MAX_LINE, MAX_HEADERS):
            raise RuntimeError("aiohttp did not take the settings of the server")


async def _unused(_request: BaseRequest) -> StreamResponse:
    """aiohttp wants a handler of its own kind; `Connection.start` calls ours."""
    raise RuntimeError("aiohttp's own loop runs in place of ours")
