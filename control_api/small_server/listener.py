"""Listens on a port, and drains it. Knows no route."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import Gauge

from control_api.small_server.connections import (
    LINGER_SECONDS,
    UNREAD_SECONDS,
    Connection,
    Register,
)
from control_api.sockets import BACKLOG, bind, bound
from policies.ground.listen_address import ListenAddress

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
    """A listening port, until it is drained."""

    def __init__(
        self, server: _Server, address: ListenAddress, sockets: list[socket.socket]
    ) -> None:
        self.address = bound(address, sockets)
        """The bound address; the system has filled in port 0."""
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
        """Listen on `address`; with `tls`, accept only TLS. `gauge` shows the number of open
        connections. Raises `CannotListen`, which names the setting."""
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
        """From now on, each answer closes its connection, so that clients go elsewhere."""
        self._server.draining = True

    async def drain(self, seconds: float) -> None:
        """Stop accepting, finish the requests under way within `seconds`, then close."""
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
