"""One request of the agent's, and what can be done about it on its connection. Knows nothing of
what is asked."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import ERROR

from policies.ground.errors import Malformed
from sidecar.http.headers import RequestHead
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.local_response import LocalResponse, ResponseSent

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)


class AgentConnection(Protocol):
    """What a request needs of the connection that it arrived on."""

    @property
    def ending(self) -> bool:
        """Whether the connection closes after the response under way."""

    @property
    def writing_paused(self) -> bool:
        """Whether more was written than the agent takes at the moment."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """None once the connection is lost."""

    def write(self, data: bytes) -> None:
        """`ConnectionResetError` where the agent is gone."""

    async def drain(self) -> None:
        """Waits until the agent has taken enough of what was written."""

    def answering(self) -> None:
        """From now on a write shows whether the agent is still there."""

    def until_agent_closes(self) -> None:
        """The response ends when the agent closes its sending side."""

    def stop_reading(self) -> None:
        """Nothing behind the current request is read."""

    def tunnel(self, most: int) -> "tuple[BufferedConnection, Within]":
        """Leaves the connection to another protocol."""


class AgentRequest:
    """One request of the agent's.

    `fault` is None unless the parser could make nothing of it; then the rest says nothing. `old` is
    whether the agent speaks HTTP/1.0, `begun` whether any of an answer went out,
    `partly_read` whether some of the body was taken off it to be judged. `head` is what
    was made of the fields, once that is known. `target` and
    `fields` are as they were written.
    """

    __slots__ = (
        "_connection",
        "_last",
        "begun",
        "body",
        "fault",
        "fields",
        "head",
        "method",
        "old",
        "partly_read",
        "target",
        "version",
    )

    def __init__(self, message: object, body: StreamReader, connection: AgentConnection) -> None:
        self.fault: Malformed | None = None
        if not isinstance(message, RawRequestMessage):
            # The parser's words echo the offending line; what is told is that there was one.
            self.fault = Malformed("the request is not HTTP/1.1")
            message = ERROR
        self.method = message.method
        self.target = message.path
        self.version = message.version
        self.fields = message.raw_headers
        self.old = message.version == HttpVersion10
        self.body = body
        self.begun = False
        self.head: RequestHead | None = None
        self.partly_read = False
        self._last = message.should_close
        self._connection = connection

    @classmethod
    def plain(cls, method: str, target: str, connection: AgentConnection) -> "AgentRequest":
        """A request that was read without the parser, its body included."""
        request = cls.__new__(cls)
        request.fault = None
        request.method, request.target, request.version = method, target, HttpVersion11
        request.fields = ()
        request.head = None
        request.old = request.begun = request.partly_read = request._last = False
        request.body = EMPTY_PAYLOAD
        request._connection = connection
        return request

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may carry another request after this one."""
        return not self._last and not self._connection.ending

    def begin(self, data: bytes) -> None:
        """The first bytes of the answer. `ConnectionResetError` where the agent is gone."""
        self._connection.write(data)
        self._connection.answering()
        self.begun = True

    def write(self, data: bytes) -> None:
        """More of the answer. `ConnectionResetError` where the agent is gone."""
        self._connection.write(data)

    @property
    def congested(self) -> bool:
        """Whether more was written than the agent takes for the moment."""
        return self._connection.writing_paused

    async def drain(self) -> None:
        """Waits until the agent has taken enough of what was written."""
        await self._connection.drain()

    def until_agent_closes(self) -> None:
        """The answer has no end of its own: an agent that closes its sending side is not waiting
        for it."""
        self._connection.until_agent_closes()

    def welcome_body(self) -> None:
        """Tells an agent that waits before it sends its body to go on."""
        if not self.body.is_eof() and not self.body.total_bytes:
            self._connection.write(_CONTINUE)

    def stop_reading(self) -> None:
        """Nothing behind this request is read: it may not be HTTP (RFC 9931)."""
        self._connection.stop_reading()

    def tunnel(self, most: int) -> "tuple[BufferedConnection, Within]":
        """Its connection, as the one end of a tunnel, and who makes connections within it. This
        request is answered when the tunnel has ended. See `BufferedConnection` for `most`."""
        return self._connection.tunnel(most)

    def reset(self) -> None:
        """Breaks the connection so that the agent can't take its end for the body's."""
        transport = self._connection.transport
        if transport is not None:
            # Without this the system ends the connection in good order.
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()

    def _cancel(self, error: BaseException) -> None:
        # aiohttp calls this when the connection is lost: whoever reads the body must know.
        if self.body is not EMPTY_PAYLOAD:
            self.body.set_exception(error)


Handler = Callable[[AgentRequest], Awaitable[LocalResponse | ResponseSent]]

Within = Callable[[Handler], asyncio.Protocol]
"""Makes a connection within another one, on which the handler answers."""
