"""The agent's side of the listener: one request, and the connection that it came on.

Beyond what the sidecar's own server does (`sidecar.server`), a body streams in while the answer
streams out, a request that can't be parsed reaches the same handler as any other so that it is
recorded, and an agent that goes away takes its request with it: what is upstream is broken off.

Knows connections and messages. Knows nothing of what is asked.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable

from aiohttp import HttpVersion10, StreamReader
from aiohttp.http import RawRequestMessage
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy
from aiohttp.web import BaseRequest, RequestPayloadError, Server, StreamResponse
from aiohttp.web_protocol import ERROR, _ErrInfo

from policies.ground.errors import Malformed, SluiceError
from sidecar.proxy.limits import Limits
from sidecar.proxy.reply import Reply, Sent
from sidecar.server import Connection, Request

log = logging.getLogger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)


class Inbound(Request):
    """One request of the agent's.

    `fault` is None unless the parser could make nothing of it; then `method` says nothing and there
    is no message. `begun` is whether any of an answer went out.
    """

    __slots__ = ("_agent", "begun", "fault", "method", "old")

    def __init__(self, message: object, body: StreamReader, connection: "AgentConnection") -> None:
        self.fault: Malformed | None = None
        if not isinstance(message, RawRequestMessage):
            # The parser's words echo the offending line; what is told is that there was one.
            self.fault = Malformed("the request is not HTTP/1.1")
            message = ERROR
        super().__init__(message, body, connection)
        self._agent = connection
        self.method = message.method
        self.old = message.version == HttpVersion10
        """Whether the agent speaks HTTP/1.0."""
        self.begun = False

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may carry another request after this one."""
        return not self.message.should_close and not self._agent.ending

    def begin(self, data: bytes) -> None:
        """The first bytes of the answer: from now on a write tells whether the agent is there."""
        self._agent.write(data)
        self._agent.stop_waiting()
        self.begun = True

    def write(self, data: bytes) -> None:
        """More of the answer. `ConnectionResetError` where the agent is gone."""
        self._agent.write(data)

    async def drain(self) -> None:
        """Waits until the agent has taken enough of what was written."""
        if self._agent.writing_paused:
            await self._agent._drain_helper()

    def welcome_body(self) -> None:
        """Tells an agent that waits before it sends its body to go on."""
        if not self.body.is_eof() and not self.body.total_bytes:
            self._agent.write(_CONTINUE)

    def stop_reading(self) -> None:
        """Nothing behind this request is read: it may not be HTTP (RFC 9931)."""
        self._agent.stop_reading()

    def reset(self) -> None:
        """Breaks the connection so that the agent can't take its end for the body's."""
        transport = self._agent.transport
        if transport is not None:
            # Without this the system ends the connection in good order.
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()


Handler = Callable[[Inbound], Awaitable[Reply | Sent]]


class AgentConnection(Connection):
    """One connection of the agent's."""

    __slots__ = ("_grace", "_half_close_seconds", "_half_closed", "_handler")

    def __init__(self, manager: Server, handler: Handler, limits: Limits) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # which aiohttp takes for "none"
            auto_decompress=False,
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.line_bytes,
            max_field_size=limits.field_bytes,
            max_headers=limits.fields,
            read_bufsize=limits.buffer_bytes,
        )
        self._handler = handler
        self._half_close_seconds = limits.half_close_seconds
        self._half_closed = False
        self._grace: asyncio.TimerHandle | None = None

    @property
    def ending(self) -> bool:
        """Whether the agent sends nothing more, and nothing more of it waits."""
        return self._half_closed and not self._messages

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes an answer
        """An agent that has sent its request may close its sending side and wait for the answer.
        One that went away looks the same until something is written to it, so it is not waited for
        without end."""
        bodies = [body for _, body in self._messages]
        if self._current_request is not None:
            bodies.append(self._current_request.body)  # type: ignore[attr-defined]  # an `Inbound`
        if not bodies or not all(body.is_eof() for body in bodies):
            return False
        self._half_closed = True
        self._grace = self._loop.call_later(self._half_close_seconds, self._give_up)
        return True

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The parser tells the server that a body's framing is broken, and not whoever reads it.
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            request = self._current_request
            if request is not None and not request.body.is_eof():  # type: ignore[attr-defined]
                request._cancel(RequestPayloadError("the body's framing is broken"))

    def connection_lost(self, exc: BaseException | None) -> None:
        self.stop_waiting()
        super().connection_lost(exc)

    def stop_waiting(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def stop_reading(self) -> None:
        self._upgraded = False
        self._message_tail = b""
        self.close()

    def _give_up(self) -> None:
        self._grace = None
        if self.transport is not None:
            self.transport.abort()

    async def _answered(self, message: object, body: StreamReader) -> bool:
        """Whether the connection may carry another request."""
        request = Inbound(message, body, self)
        self._request_in_progress = True
        self._current_request = request  # type: ignore[assignment]  # its `_cancel` is used
        try:
            answer = await self._handled(request)
            if isinstance(answer, Reply):
                keep = request.keep_alive and not answer.close
                empty = request.method == "HEAD"
                request.begin(answer.encode(keep_alive=keep, empty=empty, old=request.old))
                await request.drain()
            else:
                keep = answer.keep_alive
            return await self._drained(body) and keep and not self._close
        except ConnectionError:
            return False
        finally:
            self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)

    async def _handled(self, request: Inbound) -> Reply | Sent:
        try:
            return await self._handler(request)
        except Exception:
            # A fault of ours: logged here, and nothing of it told to the agent.
            log.exception("a proxied request failed")
            if request.begun:
                return Sent(keep_alive=False)
            return Reply.of_error(
                SluiceError("the proxy failed; see the sidecar's log"), close=True
            )


class AgentServer(Server):
    """Makes connections with these limits, each answering by `handler`."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        # With `handler_cancellation` an agent that goes away ends its request.
        super().__init__(_unused, handler_cancellation=True)
        self._handler = handler
        self._limits = limits

    def __call__(self) -> AgentConnection:
        # aiohttp's own drops every setting, limits included, when it is given one it doesn't know.
        return AgentConnection(self, self._handler, self._limits)

    def prove_settings(self) -> None:
        """Raises `RuntimeError` unless a connection is as it was told to be (proxy.md 0 fact 4):
        bodies arrive as sent, limits hold, the parser is the strict one in C."""
        made = self()
        parser = made._parser
        if HttpRequestParser is HttpRequestParserPy or not isinstance(parser, HttpRequestParser):
            raise RuntimeError("aiohttp runs without its C parser")
        limits = self._limits
        kept = (made.keepalive_timeout, made.max_line_size, made.max_field_size, made.max_headers)
        told = (limits.idle_seconds, limits.line_bytes, limits.field_bytes, limits.fields)
        [(_, body)], _, _ = parser.feed_data(
            b"POST / HTTP/1.1\r\nHost: self-check\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: 5\r\n\r\nplain"
        )
        inflated = type(body) is not StreamReader or body.read_nowait(-1) != b"plain"
        if inflated or kept != told or made.access_logger is not None:
            raise RuntimeError("aiohttp did not take the settings of the listener")


async def _unused(_request: BaseRequest) -> StreamResponse:
    """aiohttp wants a handler of its own kind; `AgentConnection` calls ours."""
    raise RuntimeError("aiohttp's own loop runs in place of ours")
