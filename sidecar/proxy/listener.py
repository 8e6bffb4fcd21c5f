"""A port on which agents speak HTTP to the proxy, over TLS where it has a certificate, from its
first connection to its last. Knows nothing of what passes through: a handler answers."""

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

Record = Callable[[str, str], Coroutine[Any, Any, None]]
"""Records a denial: its policy name, and the reason."""


class ProxyListener:
    """Listens on `listen` and answers by `handler`, or by `short_way` what may take it. With `tls`
    it speaks TLS, and `record`s what is none. With `arrivals` these take it first; `twin` is
    another host on which it listens too."""

    def __init__(
        self,
        listen: ListenAddress,
        handler: Handler,
        record: Record,
        limits: ProxyLimits = LIMITS,
        *,
        short_way: FastPath | None = None,
        tls: ssl.SSLContext | None = None,
        errands: BackgroundTasks | None = None,
        arrivals: ConnectionAcceptor | None = None,
        twin: str | None = None,
    ) -> None:
        self._listen = listen
        self._hosts = [listen.host] if twin is None else [listen.host, twin]
        self._handler = handler
        self._record = record
        self._short_way = short_way
        self._limits = limits
        self._tls = tls
        self._arrivals = arrivals
        self._errands = errands or BackgroundTasks()
        self._server: DownstreamServer | None = None
        self._sockets: asyncio.Server | None = None

    async def start(self) -> Sequence[Any]:
        """Opens the port, and gives its sockets. Raises `OSError` where it is taken, `RuntimeError`
        where the server does not behave as it was told to."""
        self._server = DownstreamServer(self._handler, self._limits, self._short_way)
        self._server.prove_settings()
        made: Callable[[], asyncio.Protocol] = self._server
        if self._arrivals is not None:
            made = partial(self._arrivals.arrive, self._server)
        elif self._tls is not None:
            made = partial(self._over_tls, self._tls)
        self._sockets = await asyncio.get_running_loop().create_server(
            made, self._hosts, self._listen.port, backlog=1024
        )
        return self._sockets.sockets

    @property
    def connections(self) -> int:
        """How many of agents are open."""
        if self._arrivals is not None:
            return self._arrivals.connections
        return 0 if self._server is None else len(self._server.connections)

    @property
    def flow(self) -> Flow:
        """The bytes on those so far."""
        return Flow() if self._server is None else self._server.flow

    @property
    def port(self) -> int:
        """The port that is open, where the configuration left the choice to the system."""
        assert self._sockets is not None
        port: int = self._sockets.sockets[0].getsockname()[1]
        return port

    async def close(self, seconds: float) -> None:
        """Takes no more connections, lets what is under way finish for `seconds`, then ends it."""
        if self._sockets is not None:
            self._sockets.close()
        closing: list[Awaitable[None]] = [self._errands.close(seconds)]
        if self._server is not None:
            self._server.pre_shutdown()
            closing.append(self._server.shutdown(seconds))
        await asyncio.gather(*closing)

    def _over_tls(self, context: ssl.SSLContext) -> TlsLayer:
        assert self._server is not None
        return TlsLayer(context, self._server, self._limits.handshake_seconds, self._failed)

    def _failed(self, reason: str) -> None:
        self._errands.run(self._record(UNREADABLE, reason))
