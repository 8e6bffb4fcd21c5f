"""Opens the proxy's listening ports and accepts connections from the agent: plain HTTP, HTTPS, or
connections whose protocol has to be found out. A connection of the last kind is buffered, and a
task of its own handles it to its end; subclasses of `ConnectionAcceptor` decide how.

Tasks that no request waits for are kept until they are done, so that a denial is recorded even if
the agent is gone. A handler answers the requests: what passes through is not known here.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from policies.ground.addresses import ListenAddress
from policies.ground.connection_budget import ConnectionBudget, Slot
from policies.ground.errors import SluiceError
from policies.ground.process.sockets import hosts_to_bind
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.connections import Connections
from sidecar.http.server.head_cache import HeadCache
from sidecar.http.server.request import Flow, HttpRequest, Serve, ServerLimits, Service
from sidecar.http.tcp_reset import reset
from sidecar.http.tls_layer import TlsLayer
from sidecar.postgres.agent import AgentConnection
from sidecar.proxy.connections import BufferedConnection
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Denied, Refused
from sidecar.proxy.routing.refused_destination import UnknownDestination
from sidecar.proxy.routing.source_endpoint import SourceEndpoint

log = logging.getLogger(__name__)


class BackgroundTasks:
    """The tasks of one port that no request waits for. An error in one is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        # The event loop holds only weak references to its tasks.
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self, seconds: float) -> None:
        """Wait up to `seconds` for the tasks to end, then cancel those that are left."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = set(self._tasks)
        # A cancelled task still has clean-up to run: a tunnel notes its lineage there.
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a connection failed", exc_info=task.exception())


class ConnectionAcceptor:
    """Accepts the connections of one port whose protocol is not known in advance. Subclasses
    implement `handle`; connections that turn out to be HTTP go to a server. `unknown` refuses what
    leads to no source."""

    def __init__(
        self, unknown: UnknownDestination, background_tasks: BackgroundTasks, limits: ProxyLimits
    ) -> None:
        self.unknown = unknown
        self.background_tasks = background_tasks
        self._limits = limits
        self._open: set[BufferedConnection] = set()

    def protocol_factory(self, server: Connections) -> BufferedConnection:
        return _AcceptedConnection(self, server, self._limits.buffer_bytes)

    @property
    def connections(self) -> int:
        return len(self._open)

    async def serve(self, request: HttpRequest) -> LocalResponse:
        """Refuse a request for which no other handler has found a source."""
        refused = self.unknown.no_source("the connection leads to no source", self.unknown.default)
        return await self.unknown.refuse(request, refused)

    async def handle(self, agent: BufferedConnection, server: Connections) -> None:
        """Handle the connection to its end, or hand it to a protocol that runs by itself."""
        raise NotImplementedError

    def connected(self, agent: BufferedConnection, server: Connections) -> None:
        self._open.add(agent)
        self.background_tasks.run(self._handle(agent, server))

    async def _handle(self, agent: BufferedConnection, server: Connections) -> None:
        try:
            await self.handle(agent, server)
            # If a protocol now runs the connection by itself, the task still lasts as long as the
            # connection, so that closing the port waits for it.
            await agent.closed
        finally:
            # After a failure too: no accepted connection may stay open without a task.
            self._open.discard(agent)
            agent.transport.abort()


async def pass_through(agent: BufferedConnection, endpoint: SourceEndpoint) -> None:
    """Decide about the connection, and splice the agent to the data source if that is allowed.
    Otherwise reset the connection; the denial is recorded."""
    try:
        # No source of the kind `tcp` has another URL.
        tunnel = await endpoint.passthroughs[endpoint.source.upstream].open(endpoint.who)
    except (Denied, Refused, SluiceError):
        # No answer: in a protocol that isn't HTTP, it would be taken for the data source's.
        reset(agent.transport)
        return
    await tunnel.run(agent)


async def serve_postgres(agent: BufferedConnection, endpoint: SourceEndpoint) -> None:
    """Run the agent's session with a PostgreSQL source to its end."""
    assert endpoint.sessions is not None
    connection = AgentConnection()
    agent.hand_to(connection)
    await endpoint.sessions.serve(connection)


class TcpAcceptor(ConnectionAcceptor):
    """Accepts the connections on the `listen` address of one source whose connections carry no
    HTTP: of the kind `postgres`, whose statements are judged, or `tcp`, which passes unread."""

    def __init__(
        self,
        endpoint: SourceEndpoint,
        unknown: UnknownDestination,
        background_tasks: BackgroundTasks,
        limits: ProxyLimits,
    ) -> None:
        super().__init__(unknown, background_tasks, limits)
        self._endpoint = endpoint

    async def handle(self, agent: BufferedConnection, _server: Connections) -> None:
        if self._endpoint.sessions is not None:
            await serve_postgres(agent, self._endpoint)
        else:
            await pass_through(agent, self._endpoint)


class _AcceptedConnection(BufferedConnection):
    def __init__(self, acceptor: ConnectionAcceptor, server: Connections, limit: int) -> None:
        super().__init__(limit)
        self._acceptor = acceptor
        self._server = server
        self._slot: Slot = server.service.budget.slot()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._slot.take(self.abort):
            self._acceptor.connected(self, self._server)
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._slot.leave()
        super().connection_lost(exc)


RecordDenial = Callable[[str, str], Coroutine[Any, Any, None]]
"""Records a denial, given its policy name (the label of the reason in the audit trail) and the
reason."""

_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class HttpService:
    """The functions that answer on a port of plain HTTP or HTTPS: `serve` answers each request.
    `tls` is None for plain HTTP."""

    serve: Serve
    record: RecordDenial
    """Records a denial for a connection whose bytes aren't valid TLS."""
    tls: ssl.SSLContext | None = None
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)


class ProxyListener:
    """A listening port of the proxy, on the address `listen`, and on the host `ipv6_twin` too if
    given. `service` answers its HTTP requests; if it is a `ConnectionAcceptor`, it takes each
    connection first and finds out what it carries. `heads` is the port's cache of request heads;
    `budget` limits the connections of all ports together."""

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
        """The numbers of bytes received and sent on the port's HTTP connections so far."""
        self._sockets: asyncio.Server | None = None

    async def start(self) -> Sequence[Any]:
        """Open the port and return its sockets. Raises `OSError` if the port is taken."""
        self._sockets = await asyncio.get_running_loop().create_server(
            self.protocol_factory(),
            [*hosts_to_bind(self._listen), *self._twins],
            self._listen.port,
            backlog=_BACKLOG,
        )
        return self._sockets.sockets

    def protocol_factory(self) -> Callable[[], asyncio.Protocol]:
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
        service = self._service
        if isinstance(service, ConnectionAcceptor):
            return service.connections
        return len(self.server.open)

    @property
    def port(self) -> int:
        """The number of the open port; the system chose it if the configuration says 0."""
        assert self._sockets is not None
        port: int = self._sockets.sockets[0].getsockname()[1]
        return port

    async def close(self, seconds: float) -> None:
        """Stop accepting connections, let requests finish for up to `seconds`, then cut off those
        that are left."""
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
