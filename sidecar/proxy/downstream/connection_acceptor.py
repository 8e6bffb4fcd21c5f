"""Connections of which nobody knows yet what is spoken on them: each is held, and seen through to
its end in a task of its own. Knows connections. Knows nothing of what becomes of one."""

import asyncio

from policies.ground.errors import SluiceError
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.connections.splice import reset
from sidecar.proxy.downstream.server import DownstreamServer
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import Denied, Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.unknown_destination import UnknownDestination


class ConnectionAcceptor:
    """Of one port. What is HTTP after all, `server` speaks on."""

    def __init__(
        self, outside: UnknownDestination, errands: BackgroundTasks, limits: ProxyLimits
    ) -> None:
        self.outside = outside
        self._errands = errands
        self._limits = limits
        self._open: set[BufferedConnection] = set()

    def arrive(self, server: DownstreamServer) -> BufferedConnection:
        """The protocol of a connection that is about to come."""
        return _NewConnection(self, server, self._limits.buffer_bytes)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    async def serve(self, request: AgentRequest) -> LocalResponse:
        """A request that nobody has led to a source."""
        refused = self.outside.unknown("the connection leads to no source", self.outside.agent)
        return await self.outside.refuse(request, refused)

    async def see_through(self, agent: BufferedConnection, server: DownstreamServer) -> None:
        """Returns when nobody speaks on it any more but by `agent.transport`."""
        raise NotImplementedError

    def came(self, agent: BufferedConnection, server: DownstreamServer) -> None:
        self._open.add(agent)
        self._errands.run(self._seen_through(agent, server))

    async def _seen_through(self, agent: BufferedConnection, server: DownstreamServer) -> None:
        try:
            await self.see_through(agent, server)
            await agent.over
        finally:
            self._open.discard(agent)
            agent.transport.abort()


async def join(agent: BufferedConnection, guarded: SourceEndpoint) -> None:
    """Joins it to a connection of the data source's, if that may be; else breaks it: what was
    decided is recorded, and bytes of ours would be taken for the data source's."""
    try:
        passed = await guarded.opaque.open(guarded.who)
    except (Denied, Refused, SluiceError):
        reset(agent.transport)
        return
    await passed.carry(agent)


class UnreadPort(ConnectionAcceptor):
    """The `listen` of a source of the kind `tcp`."""

    def __init__(
        self,
        guarded: SourceEndpoint,
        outside: UnknownDestination,
        errands: BackgroundTasks,
        limits: ProxyLimits,
    ) -> None:
        super().__init__(outside, errands, limits)
        self._guarded = guarded

    async def see_through(self, agent: BufferedConnection, _server: DownstreamServer) -> None:
        await join(agent, self._guarded)


class _NewConnection(BufferedConnection):
    def __init__(self, arrivals: ConnectionAcceptor, server: DownstreamServer, most: int) -> None:
        super().__init__(most)
        self._arrivals = arrivals
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._arrivals.came(self, self._server)
