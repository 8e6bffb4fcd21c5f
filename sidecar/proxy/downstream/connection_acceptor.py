"""Accepts connections whose protocol isn't known yet. Each is buffered, and handled to its end in a
task of its own. Knows connections. Subclasses decide what becomes of each."""

import asyncio

from policies.ground.connection_budget import Slot
from policies.ground.errors import SluiceError
from sidecar.http.server.connections import Connections
from sidecar.http.server.request import HttpRequest
from sidecar.http.tcp_reset import reset
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.pipeline.authorizer import Denied, Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.unknown_destination import UnknownDestination


class ConnectionAcceptor:
    """The connections of one port. Those that turn out to be HTTP are handed to a server."""

    def __init__(
        self, unknown: UnknownDestination, background_tasks: BackgroundTasks, limits: ProxyLimits
    ) -> None:
        self.unknown = unknown
        self.background_tasks = background_tasks
        self._limits = limits
        self._open: set[BufferedConnection] = set()

    def protocol_factory(self, server: Connections) -> BufferedConnection:
        """The protocol for a new connection."""
        return _AcceptedConnection(self, server, self._limits.buffer_bytes)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open)

    async def serve(self, request: HttpRequest) -> LocalResponse:
        """Refuses a request for which no other handler has found a source."""
        refused = self.unknown.no_source("the connection leads to no source", self.unknown.default)
        return await self.unknown.refuse(request, refused)

    async def handle(self, agent: BufferedConnection, server: Connections) -> None:
        """Handles the connection to its end, or hands it to a protocol that runs by itself."""
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
    """Joins the agent to the data source if that is allowed. Otherwise resets the connection; the
    decision is recorded."""
    try:
        tunnel = await endpoint.passthrough.open(endpoint.who)
    except (Denied, Refused, SluiceError):
        # No answer: in a protocol that isn't HTTP, it would be taken for the data source's.
        reset(agent.transport)
        return
    await tunnel.run(agent)


class TcpAcceptor(ConnectionAcceptor):
    """The `listen` of a source of the kind `tcp`."""

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
