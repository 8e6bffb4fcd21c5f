"""The port to which the packet filter redirects what an agent sends to the world. What becomes of a
connection is told by the address and port it was meant for, and its first bytes:

    port of a `tcp` source    that source, at once: such a data source may speak first
    TLS                       the source that the hello names at that port
    HTTP                      per request, the source that `Host` names at that port

The address that was meant is never connected to: it is what a resolver of the agent's said, or the
agent itself, and whatever lives there is not who the name says. The connection to the data source
goes where the configuration says. That is also why a name is not held against the address: answers
of resolvers differ and change, so it would deny what is honest, and nothing else goes there.

Whoever was not redirected, or means one of our own ports, means nobody. Knows how a destination is
found. Knows nothing of what is asked.
"""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address

from policies.ground.errors import Malformed
from policies.ground.listen_address import ListenAddress
from sidecar.http.authority import Authority
from sidecar.http.loop_guard import LoopGuard
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.connections.splice import reset
from sidecar.proxy.downstream.connection_acceptor import ConnectionAcceptor, join
from sidecar.proxy.downstream.server import DownstreamServer
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import UNREADABLE
from sidecar.proxy.routing.source_lookup import SourceGroup
from sidecar.proxy.routing.unknown_destination import UNKNOWN, UnknownDestination, place_of
from sidecar.proxy.tunnel.client_hello import Hello
from sidecar.proxy.tunnel.fixed_destination import Destination
from sidecar.proxy.tunnel.original_destination import original_destination
from sidecar.proxy.tunnel.redirected_http import RedirectedHttp
from sidecar.proxy.tunnel.tcp_sources import TcpSources
from sidecar.proxy.tunnel.tunnel_dispatch import TunnelDispatch, opening

_TWINS = {"127.0.0.1": "::1", "0.0.0.0": "::"}  # noqa: S104  # nothing is bound by this

Meant = Callable[[asyncio.Transport], Authority | None]
"""Where a connection was meant to go; None where it was not redirected."""


def by_socket(transport: asyncio.Transport) -> Authority | None:
    """As the system has it."""
    sock = transport.get_extra_info("socket")
    return None if sock is None else original_destination(sock)


def twin_of(listen: ListenAddress) -> str | None:
    """The same host of IPv6, to which the packet filter redirects what is IPv6; None where there is
    none, this host has no such address, or each port would be another."""
    twin = _TWINS.get(listen.host)
    if twin is None or not listen.port:
        return None
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((twin, 0))
    except OSError:
        return None
    return twin


class Transparent(ConnectionAcceptor):
    """The connections of one port. `own` are the ports of this sidecar."""

    def __init__(
        self,
        passage: TunnelDispatch,
        outside: UnknownDestination,
        errands: BackgroundTasks,
        own: LoopGuard,
        limits: ProxyLimits,
        meant: Meant = by_socket,
    ) -> None:
        super().__init__(outside, errands, limits)
        self._passage = passage
        self._places = passage.places
        self._unread = TcpSources([each.source for each in passage.places.guarded.values()])
        self._own = own
        self._meant = meant

    async def see_through(self, agent: BufferedConnection, server: DownstreamServer) -> None:
        to = self._meant(agent.transport)
        if to is None or self._own.reaches_self(ip_address(to.host), to.port):
            reason = "it was not redirected here, or was meant for a port of this sidecar"
            await self._break(agent, UNKNOWN, reason, to)
            return
        unread = self._unread.at(to)
        if unread is not None:
            await self._joined(agent, to, unread)
            return
        try:
            async with asyncio.timeout(self._limits.opening_seconds):
                hello = await opening(agent)
        except (Malformed, TimeoutError) as error:
            why = error.message if isinstance(error, Malformed) else "its first bytes are late"
            await self._break(agent, UNREADABLE, why, to)
            return
        if hello is None:
            agent.give(server.within(RedirectedHttp(to, self._places, self.outside).serve))
        else:
            await self._named(agent, server, to, hello)

    async def _joined(self, agent: BufferedConnection, to: Authority, group: SourceGroup) -> None:
        guarded = self._places.at(group) if group.rows else None
        if guarded is None:
            reason = "several sources have this port, and none of them this address"
            await self._break(agent, UNKNOWN, reason, to)
        else:
            await join(agent, guarded)

    async def _named(
        self, agent: BufferedConnection, server: DownstreamServer, to: Authority, hello: Hello
    ) -> None:
        name = hello.server_name
        lacks = self._passage.nameless(hello)
        if lacks is not None or name is None:
            assert lacks is not None
            await self._passage.refuse(agent, *lacks, place_of("https", to))
            return
        where = Authority(name, to.port)
        group = self._places.names.at(where)
        if group is None:
            reason = "no source of the configuration has this name and port"
            await self._passage.refuse(agent, UNKNOWN, reason, place_of("https", where))
            return
        guarded = self._places.at(group)
        who = self.outside.agent if guarded is None else guarded.who
        await self._passage.go(agent, server.within, Destination(where, group, who), None)

    async def _break(
        self, agent: BufferedConnection, policy_name: str, reason: str, to: Authority | None
    ) -> None:
        """Records it, unless the agent went away before it had said anything."""
        if agent.held or not agent.ended:
            place = None if to is None else place_of("tcp", to)
            await self.outside.record(policy_name, reason, place)
        reset(agent.transport)
