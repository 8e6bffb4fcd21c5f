"""One request from an agent, and what can be done about it on its connection. Knows nothing of what
the request asks for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import ERROR

from policies.ground.errors import Malformed
from sidecar.http.headers import RequestHead
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.connections.splice import reset
from sidecar.proxy.local_response import LocalResponse, ResponseSent

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class AgentConnection(Protocol):
    """The parts of a connection that the requests on it need."""

    @property
    def ending(self) -> bool:
        """Whether the connection closes after the response under way."""

    @property
    def writing_paused(self) -> bool:
        """Whether the agent takes less than was written."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The agent's transport; None once the connection is lost."""

    def write(self, data: bytes) -> None:
        """Writes to the agent. Raises `ConnectionResetError` if it is gone."""

    async def drain(self) -> None:
        """Waits until the agent has taken enough of what was written."""

    def on_response_started(self) -> None:
        """Notes that the first bytes of the response have been written."""

    def end_on_agent_close(self) -> None:
        """Ends the response when the agent closes its sending side."""

    def stop_reading(self) -> None:
        """Reads nothing after the current request."""

    def tunnel(self, buffer_bytes: int) -> "tuple[BufferedConnection, ConnectionFactory]":
        """Hands the connection over to another protocol."""


class AgentRequest:
    """One request from an agent, with target and fields as they were written.

    `fault` is set if the parser couldn't read the request; the other attributes then mean nothing.
    `head` holds the sorted fields once they are known. `body_partly_read` says that reading the
    body for the decision has begun.
    """

    __slots__ = (
        "_connection",
        "_should_close",
        "body",
        "body_partly_read",
        "fault",
        "fields",
        "head",
        "http10",
        "method",
        "response_started",
        "target",
        "version",
    )

    def __init__(self, message: object, body: StreamReader, connection: AgentConnection) -> None:
        self.fault: Malformed | None = None
        if not isinstance(message, RawRequestMessage):
            # The parser's error would echo the offending line, which may hold a credential.
            self.fault = Malformed("the request is not HTTP/1.1")
            message = ERROR
        self.method = message.method
        self.target = message.path
        self.version = message.version
        self.fields = message.raw_headers
        self.http10 = message.version == HttpVersion10
        self.body = body
        self.response_started = False
        self.head: RequestHead | None = None
        self.body_partly_read = False
        self._should_close = message.should_close
        self._connection = connection

    @classmethod
    def without_parser(
        cls, method: str, target: str, connection: AgentConnection
    ) -> "AgentRequest":
        """A request that the fast path has read, including its body."""
        # Without fields: the fast path has read them already, and the slow path needs them no more.
        message = ERROR._replace(
            method=method, path=target, version=HttpVersion11, raw_headers=(), should_close=False
        )
        return cls(message, EMPTY_PAYLOAD, connection)

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may carry another request after this one."""
        return not self._should_close and not self._connection.ending

    def start_response(self, data: bytes) -> None:
        """Writes the first bytes of the response. Raises `ConnectionResetError` if the agent is
        gone."""
        self._connection.write(data)
        self._connection.on_response_started()
        self.response_started = True

    def write(self, data: bytes) -> None:
        """Writes more of the response. Raises `ConnectionResetError` if the agent is gone."""
        self._connection.write(data)

    @property
    def congested(self) -> bool:
        """Whether the agent takes less than was written."""
        return self._connection.writing_paused

    async def drain(self) -> None:
        """Waits until the agent has taken enough of what was written."""
        await self._connection.drain()

    def end_on_agent_close(self) -> None:
        """Ends the response when the agent closes its sending side. For a response without an end,
        such as an event stream: the agent can't be waiting for it."""
        self._connection.end_on_agent_close()

    def send_continue(self) -> None:
        """Tells an agent that sent `Expect: 100-continue` to send its body."""
        # An agent that is already sending doesn't need it (RFC 9110 section 10.1.1).
        if not self.body.is_eof() and not self.body.total_bytes:
            self._connection.write(_CONTINUE)

    def stop_reading(self) -> None:
        """Reads nothing after this request: it may not be HTTP (RFC 9931)."""
        self._connection.stop_reading()

    def tunnel(self, buffer_bytes: int) -> "tuple[BufferedConnection, ConnectionFactory]":
        """Turns the connection into one end of a tunnel, and returns it with a factory for HTTP
        connections inside it. `buffer_bytes` is the `limit` of a `BufferedConnection`. The request
        counts as answered when the tunnel has ended."""
        return self._connection.tunnel(buffer_bytes)

    def reset(self) -> None:
        """Breaks the connection, so that the agent can't take its end for the end of the body."""
        transport = self._connection.transport
        if transport is not None:
            reset(transport)

    def _cancel(self, error: BaseException) -> None:
        # aiohttp calls this when the connection is lost, so that reading the body fails.
        if self.body is not EMPTY_PAYLOAD:
            self.body.set_exception(error)


Handler = Callable[[AgentRequest], Awaitable[LocalResponse | ResponseSent]]

ConnectionFactory = Callable[[Handler], asyncio.Protocol]
"""Creates an HTTP connection inside another connection. The handler answers its requests."""
