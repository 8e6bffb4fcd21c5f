"""One listening port of the proxy: plain HTTP, HTTPS, or connections whose protocol has to be found
out. Knows nothing of what passes through; a handler answers."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from policies.ground.listen_address import ListenAddress
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.connections.tls import TlsLayer
from sidecar.proxy.downstream.connection_acceptor import ConnectionAcceptor
from sidecar.proxy.downstream.server import DownstreamServer
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.messages.request import Handler
from sidecar.proxy.pipeline.authorizer import UNREADABLE
from sidecar.proxy.pipeline.fast_path import FastPath
from sidecar.proxy.proxy_metrics import Flow

RecordDenial = Callable[[str, str], Coroutine[Any, Any, None]]
"""Records a denial: its policy name, and the reason."""

_BACKLOG = 1024


class ProxyListener:
    """Listens on `listen`; `handler` answers the requests, and `record` records connections that
    aren't valid TLS. Each keyword adds one thing:

    `fast_path`   offers simple requests to the fast path first
    `tls`         speaks TLS with this context
    `acceptor`    takes each connection first, and finds out what it is
    `ipv6_twin`   listens on this host, too
    """

    def __init__(
        self,
        listen: ListenAddress,
        handler: Handler,
        record: RecordDenial,
        limits: ProxyLimits = LIMITS,
        *,
        fast_path: FastPath | None = None,
        tls: ssl.SSLContext | None = None,
        background_tasks: BackgroundTasks | None = None,
        acceptor: ConnectionAcceptor | None = None,
        ipv6_twin: str | None = None,
    ) -> None:
        self._listen = listen
        self._hosts = [listen.host] if ipv6_twin is None else [listen.host, ipv6_twin]
        self._handler = handler
        self._record = record
        self._fast_path = fast_path
        self._limits = limits
        self._tls = tls
        self._acceptor = acceptor
        self._background_tasks = background_tasks or BackgroundTasks()
        self.server: DownstreamServer | None = None
        self._sockets: asyncio.Server | None = None

    @classmethod
    def of_acceptor(
        cls,
        listen: ListenAddress,
        acceptor: ConnectionAcceptor,
        limits: ProxyLimits,
        ipv6_twin: str | None = None,
    ) -> "ProxyListener":
        """A port whose connections `acceptor` handles."""
        return cls(
            listen,
            acceptor.serve,
            acceptor.unknown.record,
            limits,
            background_tasks=acceptor.background_tasks,
            acceptor=acceptor,
            ipv6_twin=ipv6_twin,
        )

    async def start(self) -> Sequence[Any]:
        """Opens the port, and returns its sockets. Raises `OSError` if it is taken, `RuntimeError`
        if aiohttp did not take the settings."""
        self.server = DownstreamServer(self._handler, self._limits, self._fast_path)
        self.server.prove_settings()
        self._sockets = await asyncio.get_running_loop().create_server(
            self.protocol_factory(), self._hosts, self._listen.port, backlog=_BACKLOG
        )
        return self._sockets.sockets

    def protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        """Creates the protocol of each new connection. Only once the listener has started."""
        assert self.server is not None
        if self._acceptor is not None:
            return partial(self._acceptor.protocol_factory, self.server)
        if self._tls is None:
            return self.server
        seconds = self._limits.handshake_seconds
        return partial(TlsLayer, self._tls, self.server, seconds, self._not_tls)

    @property
    def connections(self) -> int:
        """How many connections from agents are open."""
        if self._acceptor is not None:
            return self._acceptor.connections
        return 0 if self.server is None else len(self.server.connections)

    @property
    def flow(self) -> Flow:
        """Bytes on those connections so far."""
        return Flow() if self.server is None else self.server.flow

    @property
    def port(self) -> int:
        """The open port; the system chose it if the configuration says 0."""
        assert self._sockets is not None
        port: int = self._sockets.sockets[0].getsockname()[1]
        return port

    async def close(self, seconds: float) -> None:
        """Stops accepting, lets requests finish for `seconds`, then ends them."""
        if self._sockets is not None:
            self._sockets.close()
        closing: list[Awaitable[None]] = [self._background_tasks.close(seconds)]
        if self.server is not None:
            self.server.pre_shutdown()
            closing.append(self.server.shutdown(seconds))
        await asyncio.gather(*closing)

    def _not_tls(self, reason: str) -> None:
        self._background_tasks.run(self._record(UNREADABLE, reason))
