"""A small HTTP server for programs beside the service: a listening port, its connections, health
probes, and error responses.

The port may be open to anyone in the cluster, although only the Kubernetes API server needs it. So
what one client can hold is bounded in number, in time and in bytes.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed, MethodNotAllowed, NotFound, SluiceError
from policies.ground.process.sockets import BACKLOG, bind, bound

HEADERS = {
    "Server": "sluice",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Type": "application/json",
}


def error_response(error: SluiceError) -> web.Response:
    """Return the response for an error, with its status and body. It closes the connection: the
    rest of a refused body may still be on its way."""
    response = web.Response(status=error.status, body=error.encoded(), headers=HEADERS)
    response.force_close()
    return response


MAX_CONNECTIONS = 512
FIRST_REQUEST_SECONDS = 10.0
"""The seconds that a new connection may take to send the head of its first request."""
LINGER_SECONDS = 2.0
"""The seconds for which the rest of a refused body is still read: closing at once would reset the
connection, and the client would not see why."""
UNREAD_SECONDS = 10.0
"""The seconds after which a client that does not read its responses is disconnected; it may take
twice as long."""
KEEP_ALIVE_SECONDS = 120.0
"""The seconds for which an idle connection stays open: longer than the 90 s after which the
Kubernetes API server closes it. If we closed first, a request that is just being sent would be
lost."""
_log = logging.getLogger("sluice.server")


class Connection(web.RequestHandler):
    """One client's connection. It enters itself in a `Register`, and answers requests that are not
    HTTP."""

    __slots__ = ("_first_request", "_register")

    def __init__(self, server: web.Server, register: "Register") -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None turns it off, as aiohttp documents
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            # A compressed body is refused. Decompressing what came with the head would be too late.
            auto_decompress=False,
        )
        self._register = register
        self._first_request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        # aiohttp limits the pauses between requests, and not the one before the first.
        self._first_request = loop.call_later(FIRST_REQUEST_SECONDS, self.force_close)
        self._register.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._first_request is not None:
            self._first_request.cancel()
        self._register.closed(self)

    def has_requested(self) -> None:
        """Note that a request has arrived: the connection is in use, and has met the deadline for
        its first request."""
        if self._first_request is not None:
            self._first_request.cancel()
            self._first_request = None
        self._register.used(self)

    def abort(self) -> None:
        """Close the connection without sending what is left: a client that doesn't read would never
        take it."""
        if self.transport is not None:
            self.transport.abort()

    @property
    def unread(self) -> int:
        """The number of response bytes that the client has not taken yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  # aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Return the response if a request can't be parsed as HTTP, or if the handler itself
        fails."""
        if status < 500:
            return error_response(Malformed("the request is not HTTP/1.1"))
        _log.error("a request failed outside its handler", exc_info=exc)
        return error_response(SluiceError("internal error"))


class Register:
    """The open connections of a port. Those that have not sent a request yet are kept apart, and
    are closed first when there are too many."""

    def __init__(self, gauge: Gauge | None) -> None:
        self._gauge = gauge
        # Both in the order in which they were used last; dictionaries serve as ordered sets.
        self._silent: dict[Connection, None] = {}
        self._in_use: dict[Connection, None] = {}
        self._stuck: set[Connection] = set()

    def opened(self, connection: Connection) -> None:
        self._silent[connection] = None
        self._count()
        if len(self._silent) + len(self._in_use) > MAX_CONNECTIONS:
            # First one that never sent anything, else the one that was idle longest: a client that
            # opens many connections must not keep the next one out.
            victim = next(iter(self._silent))
            if victim is connection and self._in_use:
                victim = next(iter(self._in_use))
            victim.force_close()

    def used(self, connection: Connection) -> None:
        self._silent.pop(connection, None)
        self._in_use.pop(connection, None)
        self._in_use[connection] = None

    def closed(self, connection: Connection) -> None:
        self._silent.pop(connection, None)
        self._in_use.pop(connection, None)
        self._stuck.discard(connection)
        self._count()

    def sweep(self) -> None:
        """Close the connections whose client had unread response bytes both now and at the last
        sweep."""
        unread = {each for each in self._in_use if each.unread}
        for each in unread & self._stuck:
            each.abort()
        self._stuck = unread

    def _count(self) -> None:
        if self._gauge is not None:
            self._gauge.set(len(self._silent) + len(self._in_use))


HANDSHAKE_SECONDS = 5.0
Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]


class _Server(web.Server):
    def __init__(self, handler: Handler, gauge: Gauge | None) -> None:
        super().__init__(self._answer)
        self.register = Register(gauge)
        self.draining = False
        self._handler = handler

    def __call__(self) -> web.RequestHandler:
        return Connection(self, self.register)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, Connection):
            request.protocol.has_requested()
        response = await self._handler(request)
        if self.draining:
            response.force_close()
        return response


class Listener:
    """A listening port with its server, from `open` until `drain`."""

    def __init__(
        self, server: _Server, address: ListenAddress, sockets: list[socket.socket]
    ) -> None:
        self.address = bound(address, sockets)
        """The address that is listened on, with the port that the system chose if 0 was asked
        for."""
        self._server = server
        self._accepting: list[asyncio.Server] = []
        self._sweeping = asyncio.get_running_loop().call_later(UNREAD_SECONDS, self._sweep)

    @classmethod
    async def open(
        cls,
        address: ListenAddress,
        setting: str,
        handler: Handler,
        gauge: Gauge | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> "Listener":
        """Listen on `address`, and answer requests by `handler`. With `tls`, accept only TLS.
        `gauge` shows the number of open connections. Raises `CannotListen`, which names the
        setting."""
        server = _Server(handler, gauge)
        sockets = bind(address, setting)[0]
        opened = cls(server, address, sockets)
        loop = asyncio.get_running_loop()
        for each in sockets:
            opened._accepting.append(
                await loop.create_server(
                    server,
                    sock=each,
                    backlog=BACKLOG,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
                    ssl_shutdown_timeout=LINGER_SECONDS if tls else None,
                )
            )
        return opened

    def refuse_keep_alive(self) -> None:
        """Make each response close its connection from now on, so that clients go elsewhere."""
        self._server.draining = True

    async def drain(self, seconds: float) -> None:
        """Stop accepting connections, finish the requests that are in progress within `seconds`,
        then close."""
        self.refuse_keep_alive()
        self._sweeping.cancel()
        for each in self._accepting:
            each.close()
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)

    def _sweep(self) -> None:
        self._server.register.sweep()
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(UNREAD_SECONDS, self._sweep)


class Probes:
    """Answers the requests to the health port: `/health`, `/health/ready` and `/metrics`.
    `not_ready` returns the reason why the program can't do its work now, None if it can."""

    def __init__(self, registry: CollectorRegistry, not_ready: Callable[[], str | None]) -> None:
        self._registry = registry
        self._not_ready = not_ready

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return error_response(MethodNotAllowed())
        match request.raw_path.partition("?")[0]:
            case "/health":
                return _status(200, "ok")
            case "/health/ready":
                reason = self._not_ready()
                return _status(200, "ready") if reason is None else _status(503, reason)
            case "/metrics":
                headers = {**HEADERS, "Content-Type": CONTENT_TYPE_LATEST}
                return web.Response(body=generate_latest(self._registry), headers=headers)
        return error_response(NotFound())


def _status(status: int, text: str) -> web.Response:
    return web.Response(status=status, body=orjson.dumps({"status": text}), headers=HEADERS)
