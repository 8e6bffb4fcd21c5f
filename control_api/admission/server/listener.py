"""Listens on a port with limits on its connections, and drains it. Knows no route."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import Gauge

from control_api.sockets import BACKLOG, bind
from policies.ground.errors import Malformed, SluiceError
from policies.ground.listen_address import ListenAddress

MAX_CONNECTIONS = 512
HANDSHAKE_SECONDS = 5.0
FIRST_REQUEST_SECONDS = 10.0
"""How long a new connection may take to send the head of its first request."""
LINGER_SECONDS = 2.0
"""How long the rest of a refused body is read: closing at once would reset the connection, and the
client would not see why."""
KEEP_ALIVE_SECONDS = 120.0
"""Longer than the 90 s after which the API server closes idle connections. If we closed first, a
review that is just being sent would be lost."""
HEADERS = {
    "Server": "sluice",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Type": "application/json",
}
Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]
_log = logging.getLogger("sluice.webhook")


def error_response(error: SluiceError) -> web.Response:
    """The error's body and status. The connection is closed: the rest of a refused body may still
    be on its way."""
    response = web.Response(status=error.status, body=error.encoded(), headers=HEADERS)
    response.force_close()
    return response


class _Connection(web.RequestHandler):
    """One connection. Registers itself, and answers what is not HTTP."""

    __slots__ = ("_first_request", "_register")

    def __init__(self, server: "_Server", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None turns it off, as aiohttp documents
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            # A compressed body is refused. Decompressing what came with the head would be too late.
            auto_decompress=False,
        )
        self._register = server.register
        self._first_request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        # aiohttp limits the pauses between requests, and not the one before the first.
        self._first_request = loop.call_later(FIRST_REQUEST_SECONDS, self.force_close)
        self._register.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.has_requested()
        self._register.closed(self)

    def has_requested(self) -> None:
        """Called for each request: the connection is in use, and its first deadline is met."""
        if self._first_request is not None:
            self._first_request.cancel()
            self._first_request = None
            self._register.proved(self)

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  # aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Called if a request can't be parsed as HTTP, or if the handler itself fails."""
        if status < 500:
            return error_response(Malformed("the request is not HTTP/1.1"))
        _log.error("a request failed outside its handler", exc_info=exc)
        return error_response(SluiceError("internal error"))


class _Register:
    """The open connections of a port, those that have not sent a request yet apart."""

    def __init__(self, gauge: Gauge | None) -> None:
        self._gauge = gauge
        self._silent: dict[_Connection, None] = {}
        self._in_use: set[_Connection] = set()

    def opened(self, connection: _Connection) -> None:
        self._silent[connection] = None
        self._count()
        if len(self._silent) + len(self._in_use) > MAX_CONNECTIONS:
            # The one that has been silent longest goes: it may be this one. Connections in use are
            # the API server's, and stay.
            next(iter(self._silent)).force_close()

    def proved(self, connection: _Connection) -> None:
        if self._silent.pop(connection, self) is None:
            self._in_use.add(connection)

    def closed(self, connection: _Connection) -> None:
        self._silent.pop(connection, None)
        self._in_use.discard(connection)
        self._count()

    def _count(self) -> None:
        if self._gauge is not None:
            self._gauge.set(len(self._silent) + len(self._in_use))


class _Server(web.Server):
    def __init__(self, handler: Handler, gauge: Gauge | None) -> None:
        super().__init__(self._answer)
        self.register = _Register(gauge)
        self.draining = False
        self._handler = handler

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, asyncio.get_running_loop())

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, _Connection):
            request.protocol.has_requested()
        response = await self._handler(request)
        if self.draining:
            response.force_close()
        return response


class Listener:
    """A listening port, until it is drained."""

    def __init__(self, server: _Server, sockets: list[socket.socket]) -> None:
        self.address = ListenAddress(*sockets[0].getsockname()[:2])
        """The bound address; the system has filled in port 0."""
        self._server = server
        self._accepting: list[asyncio.Server] = []

    @classmethod
    async def open(
        cls,
        address: ListenAddress,
        setting: str,
        handler: Handler,
        gauge: Gauge | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> "Listener":
        """Listen on `address`; with `tls`, accept only TLS. `gauge` shows the number of open
        connections. Raises `CannotListen`, which names the setting."""
        server = _Server(handler, gauge)
        sockets = bind(address, setting)[0]
        opened = cls(server, sockets)
        loop = asyncio.get_running_loop()
        for each in sockets:
            opened._accepting.append(
                await loop.create_server(
                    server,
                    sock=each,
                    backlog=BACKLOG,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
                )
            )
        return opened

    def refuse_keep_alive(self) -> None:
        """From now on, each answer closes its connection, so that clients go elsewhere."""
        self._server.draining = True

    async def drain(self, seconds: float) -> None:
        """Stop accepting, finish the requests under way within `seconds`, then close."""
        self.refuse_keep_alive()
        for each in self._accepting:
            each.close()
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)
