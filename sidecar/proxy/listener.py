"""One listening port of the proxy: plain HTTP, HTTPS, or connections whose protocol has to be found
out. Knows nothing of what passes through: a handler answers the requests."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from policies.ground.connection_budget import ConnectionBudget
from policies.ground.errors import SluiceError
from policies.ground.listen_address import ListenAddress
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.connections import Connections
from sidecar.http.server.head_cache import HeadCache
from sidecar.http.server.request import HttpRequest, Serve
from sidecar.http.server.service import Flow, ServerLimits, Service
from sidecar.http.tls_layer import TlsLayer
from sidecar.platform.hosts_to_bind import hosts_to_bind
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.downstream.connection_acceptor import ConnectionAcceptor
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.pipeline.authorizer import UNREADABLE

RecordDenial = Callable[[str, str], Coroutine[Any, Any, None]]
"""Records a denial, given its policy name and the reason."""

_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class HttpService:
    """The parts that answer on a port of plain HTTP or HTTPS."""

    serve: Serve
    record: RecordDenial
    """Records the connections that aren't valid TLS."""
    tls: ssl.SSLContext | None = None
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)


class ProxyListener:
    """Listens on `listen`, and on the host `ipv6_twin` too if given, within the `budget` of all
    ports. If `service` is an acceptor, it takes each connection first and finds out what it
    carries."""

    def __init__(
        self,
        listen: ListenAddress,
        service: HttpService | ConnectionAcceptor,
        heads: HeadCache,
        budget: ConnectionBudget,
        limits: ProxyLimits = LIMITS,
        ipv6_twin: str | None = None,
    ) -> None:
        self._listen = listen
        self._twins = [] if ipv6_twin is None else [ipv6_twin]
        self._service = service
        self._limits = limits
        self.server = Connections(_http_service(service.serve, limits, heads, budget))
        self.flow = self.server.flow
        """The bytes on the port's HTTP connections so far."""
        self._sockets: asyncio.Server | None = None

    async def start(self) -> Sequence[Any]:
        """Opens the port, and returns its sockets. Raises `OSError` if it is taken."""
        self._sockets = await asyncio.get_running_loop().create_server(
            self.protocol_factory(),
            [*hosts_to_bind(self._listen), *self._twins],
            self._listen.port,
            backlog=_BACKLOG,
        )
        return self._sockets.sockets

    def protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        """The factory of each new connection's protocol."""
        service = self._service
        if isinstance(service, ConnectionAcceptor):
            return partial(service.protocol_factory, self.server)
        if service.tls is None:
            return self.server

        def record_invalid(reason: str) -> None:
            # There is no request that could wait for the record.
            service.background_tasks.run(service.record(UNREADABLE, reason))

        tls, above, seconds = service.tls, self.server.above, self._limits.handshake_seconds
        budget = self.server.service.budget
        return lambda: TlsLayer(tls, above, seconds, record_invalid, budget.slot())

    @property
    def connections(self) -> int:
        """How many connections from agents are open."""
        service = self._service
        if isinstance(service, ConnectionAcceptor):
            return service.connections
        return len(self.server.open)

    @property
    def port(self) -> int:
        """The open port; the system chose it if the configuration says 0."""
        assert self._sockets is not None
        port: int = self._sockets.sockets[0].getsockname()[1]
        return port

    async def close(self, seconds: float) -> None:
        """Stops accepting, lets requests finish for `seconds`, then ends them."""
        # First, so that no connection arrives while the others finish.
        if self._sockets is not None:
            self._sockets.close()
        await asyncio.gather(
            self._service.background_tasks.close(seconds), self.server.close(seconds)
        )


def _http_service(
    serve: Serve, limits: ProxyLimits, heads: HeadCache, budget: ConnectionBudget
) -> Service:
    server_limits = ServerLimits(
        HeadLimits(limits.line_bytes, limits.field_bytes, limits.fields),
        limits.buffer_bytes,
        limits.idle_seconds,
        limits.lingering_seconds,
        limits.half_close_seconds,
        limits.stream_idle_seconds,
    )
    # An agent that leaves cancels its request: nothing more is read from the data source.
    return Service(serve, _failed, server_limits, Flow(), True, heads, budget)


def _failed(_request: HttpRequest) -> LocalResponse:
    error = SluiceError("the proxy failed; see the sidecar's log")
    return LocalResponse.of_error(error, close=True)
