"""Listens on sockets, limits the size of arriving request heads, answers input that is not HTTP,
and drains its connections at a stop."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from control_api.current_request import DEPARTURE, Departure
from control_api.edge.answers import HttpReply, render_error
from policies.ground.addresses import ListenAddress
from policies.ground.connection_budget import (
    DEFAULT_CONNECTIONS,
    HEAD_BYTES,
    HEAD_TOO_LONG,
    HEADS_FULL,
    ConnectionBudget,
)
from policies.ground.errors import Malformed, SluiceError
from policies.ground.process.sockets import BACKLOG, bind, bound
from policies.ground.process.tls_files import HANDSHAKE_SECONDS

_END = b"\r\n\r\n"


class ArrivingHead:
    """Measures the request head (request line and headers) that is arriving on one connection, if
    one is, and charges it to the connections' shared budget."""

    __slots__ = ("_body", "_ended", "_held", "_tail", "owed")

    def __init__(self, budget: ConnectionBudget) -> None:
        self._held = budget.head()
        self._tail = b""
        """The last bytes that arrived, because the blank line that ends a head may be split between
        two reads."""
        self._ended = False
        """True if a head is complete and its request is not being served yet."""
        self._body: StreamReader | None = None
        """The body of the request that was served last, or is being served."""
        self.owed = False
        """True if a request waits for its response."""

    def arrived(self, data: bytes) -> bytes | None:
        """Count the bytes that arrived. Return None, or the response that refuses them because the
        head is too long or all heads together exceed the budget."""
        if self._ended or not (self._body is None or self._body.is_eof()):
            return None
        joined = self._tail + data
        end = joined.find(_END)
        if end >= 0:
            size, self._ended, self._tail = self._held.size + end - len(self._tail), True, b""
            self.owed = self.owed or size <= HEAD_BYTES
            self._held.release()
            return None if size <= HEAD_BYTES else HEAD_TOO_LONG
        self._tail = joined[1 - len(_END) :]
        size = self._held.size + len(data)
        if size > HEAD_BYTES:
            return HEAD_TOO_LONG
        return None if self._held.resize(size) else HEADS_FULL

    def served(self, body: StreamReader) -> None:
        """Record that the request whose head is complete is being served. The bytes after its
        `body` are the next head."""
        self._ended, self._body, self._tail = False, body, b""
        self._held.release()

    def answered(self) -> None:
        self.owed = self._ended

    def lost(self) -> None:
        self._held.release()


KEEP_ALIVE_SECONDS = 75.0
# Closing at once would reset the connection, and the client would not see the response.
LINGER_SECONDS = 2.0
"""The most seconds for which the rest of a refused body is still read."""
LAST_SECONDS = 0.1
"""The seconds for which an open connection may still send another request during a drain."""
_log = logging.getLogger("sluice.http")


class RequestHandler(Protocol):
    new_request_id: Callable[[], str]

    def response(self, reply: HttpReply, request_id: str, /) -> web.StreamResponse: ...

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse: ...


class _Connection(web.RequestHandler):
    """A client's connection. It replaces aiohttp's error pages with our JSON errors, and closes if
    all connections together would exceed their budget."""

    __slots__ = (
        "_new_request_id", "_raw", "_refused", "_response", "_slot", "departure", "head",
    )  # fmt: skip

    def __init__(self, server: "_Server", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None turns it off, as aiohttp documents
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            # INVARIANT: nothing is inflated before the caller is known, and never without a limit.
            auto_decompress=False,
        )
        self._new_request_id = server.new_request_id
        self._response = server.response
        self._slot = server.budget.slot()
        self.head = ArrivingHead(server.budget)
        self.departure = Departure()
        self._raw: asyncio.Transport | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._raw = raw = cast(asyncio.Transport, transport)
        if self._slot.take(raw.abort):
            super().connection_made(transport)
        else:
            self._refused = True
            raw.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._slot.leave()
        self.head.lost()
        self._raw = None
        self.departure.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        refusal = self.head.arrived(data)
        if refusal is None:
            super().data_received(data)
            return
        self._refused = True
        # It would be taken for a response that is still owed.
        if self._raw is not None and not self.head.owed:
            self._raw.write(refusal)
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  # aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Respond to input that is not HTTP, or to a request on which the pipeline itself
        failed."""
        request_id = self._new_request_id()
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            # Don't pass on the parser's message: it quotes the request, which may contain a key.
            reply = render_error(Malformed("the request is not HTTP/1.1"))
        else:
            _log.error("request `%s` failed outside the pipeline", request_id, exc_info=exc)
            reply = render_error(SluiceError(f"internal error, request `{request_id}`"))
        response = self._response(reply, request_id)
        response.force_close()
        return response


class _Server(web.Server):
    def __init__(self, handler: RequestHandler, budget: ConnectionBudget) -> None:
        super().__init__(self._answer, request_factory=self._request)
        self.budget = budget
        self.new_request_id = handler.new_request_id
        self.response = handler.response
        self.draining = False
        self._handler = handler

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._loop)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        assert isinstance(protocol, _Connection)
        protocol.head.served(payload)
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _Connection)
        # A request has a context of its own.
        DEPARTURE.set(connection.departure)
        response = await self._handler(request)
        connection.head.answered()
        if self.draining:
            response.force_close()
        return response


class ApiListener:
    """Accepts connections on an address until it is drained."""

    def __init__(
        self,
        server: _Server,
        address: ListenAddress,
        sockets: list[socket.socket],
        accepting: list[asyncio.Server],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.address = bound(address, sockets)
        """The address that is listened on. Port 0 is replaced by the port that the system chose."""
        self._server = server
        self._sockets = sockets
        self._accepting = accepting
        self._tls = tls

    @classmethod
    async def open(
        cls,
        address: ListenAddress,
        setting: str,
        handler: RequestHandler,
        inherited: list[socket.socket],
        tls: ssl.SSLContext | None = None,
        budget: ConnectionBudget | None = None,
    ) -> "ApiListener":
        """Listen on the inherited sockets, or else on `address`. With `tls`, accept only TLS. The
        connections stay within `budget`; without one, within the settings' default.

        Raise `CannotListen`, which names the setting, if the address can't be bound.
        """
        server = _Server(handler, budget or ConnectionBudget(DEFAULT_CONNECTIONS))
        sockets = inherited or bind(address, setting)[0]
        loop = asyncio.get_running_loop()
        # The server gets a duplicate of each socket. After it has closed that, `_accept_rest` can
        # still accept the connections that wait in the backlog.
        accepting = [
            await loop.create_server(
                server,
                sock=each.dup(),
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            )
            for each in sockets
        ]
        return cls(server, address, sockets, accepting, tls)

    async def drain(self, seconds: float) -> None:
        """Stop accepting, finish the requests under way within `seconds`, then close.

        An open connection gets one more response, with `Connection: close`.
        """
        self._server.draining = True
        # In this order: the loop stops accepting, we accept what is left, and only then is the port
        # closed. Otherwise the kernel would reset what waits in the backlog.
        for each in self._accepting:
            each.close()
        waiting = self._accept_rest()
        # Concurrently: a client that stalls in its TLS handshake must not hold up the rest. If a
        # handshake fails, no request is lost, because the client has sent none yet.
        await asyncio.gather(*map(self._take, waiting), return_exceptions=True)
        await asyncio.sleep(LAST_SECONDS)
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)

    def _accept_rest(self) -> list[socket.socket]:
        """Accept the connections that wait in the backlog, and close the ports.

        The event loop gets no turn between the two. A connection that arrives after the last
        `accept` and before `close` is reset.
        """
        waiting: list[socket.socket] = []
        for sock in self._sockets:
            with contextlib.suppress(BlockingIOError):
                while True:
                    waiting.append(sock.accept()[0])
            sock.close()
        return waiting

    async def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(
            self._server,
            connection,
            ssl=self._tls,
            ssl_handshake_timeout=LINGER_SECONDS if self._tls else None,
        )
