"""Handles connections on the transparent port, to which the packet filter redirects the agent's
connections. The original port (and address), and the first bytes, decide what becomes of each
connection:

    port of a `tcp` source    that source, at once, because such a server may speak first
    TLS                       the source that the hello names at that port
    HTTP                      for each request, the source that `Host` names at that port

The original address is never connected to: it comes from the agent, or from a resolver that the
agent asked, and need not belong to the name. The connection to the data source leads where the
configuration says.

A connection that wasn't redirected, or was going to one of the sidecar's own ports, is denied.
Knows how a destination is found. Knows nothing of what a request asks for.
"""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address

from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed
from policies.ground.process.sockets import can_bind
from sidecar.http.authority import Authority
from sidecar.http.client.egress_guard import LoopGuard
from sidecar.http.server.connections import Connections
from sidecar.http.tcp_reset import reset
from sidecar.proxy.connections import BufferedConnection
from sidecar.proxy.downstream import BackgroundTasks, ConnectionAcceptor, pass_through
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import UNREADABLE
from sidecar.proxy.routing.refused_destination import UNKNOWN, UnknownDestination, requested_source
from sidecar.proxy.routing.source_lookup import SourceGroup, TcpSources
from sidecar.proxy.routing.source_router import Destination, RedirectedRouter
from sidecar.proxy.tunnel.client_hello import Hello
from sidecar.proxy.tunnel.redirect_check import RedirectCheck, original_destination
from sidecar.proxy.tunnel.tunnel_dispatch import TunnelDispatch, read_hello

_IPV6_TWINS = {"127.0.0.1": "::1", "0.0.0.0": "::"}  # noqa: S104  # nothing is bound by this

DestinationLookup = Callable[[asyncio.Transport], Authority | None]
"""Finds the address and port that a connection was going to; None if that isn't known. For a
connection that wasn't redirected it may be the sidecar's own port."""


def socket_destination(transport: asyncio.Transport) -> Authority | None:
    """Ask the operating system for the address and port that a redirected connection was going to.
    None if the system tracks no redirection, or the connection has no socket; for a connection that
    wasn't redirected it may be the sidecar's own port."""
    sock = transport.get_extra_info("socket")
    return None if sock is None else original_destination(sock)


def ipv6_twin(listen: ListenAddress) -> str | None:
    """Return the IPv6 counterpart of the host in `listen`, to which the packet filter redirects
    IPv6 connections; None if the host has no counterpart, the port is chosen by the system, or the
    counterpart can't be bound."""
    twin = _IPV6_TWINS.get(listen.host)
    # With port 0, the system would choose a different port for each of the two.
    if twin is None or not listen.port:
        return None
    # Without IPv6, or this address, no IPv6 connection can be redirected here.
    return twin if can_bind(twin) else None


class Transparent(ConnectionAcceptor):
    """Accepts the redirected connections of the transparent port. `own` are the sidecar's own
    ports; `check` gets the connections that it opened itself before anything else looks at them."""

    def __init__(
        self,
        dispatch: TunnelDispatch,
        unknown: UnknownDestination,
        background_tasks: BackgroundTasks,
        own: LoopGuard,
        limits: ProxyLimits,
        find_original: DestinationLookup = socket_destination,
        *,
        check: RedirectCheck | None = None,
    ) -> None:
        super().__init__(unknown, background_tasks, limits)
        self._dispatch = dispatch
        self._destinations = dispatch.destinations
        endpoints = dispatch.destinations.endpoints.values()
        self._tcp_sources = TcpSources([each.source for each in endpoints])
        self._own = own
        self._find_original = find_original
        self._check = check

    async def handle(self, agent: BufferedConnection, server: Connections) -> None:
        original = self._find_original(agent.transport)
        if original is None or self._own.reaches_self(ip_address(original.host), original.port):
            reason = "the connection was not redirected, or was going to a port of this sidecar"
            await self._deny(agent, UNKNOWN, reason, original)
            return
        if self._check is not None and await self._check.claims_connection(
            agent, original, self._limits.opening_seconds
        ):
            return
        # Before any byte is awaited: the server of a `tcp` source may speak first.
        tcp_group = self._tcp_sources.at(original)
        if tcp_group is not None:
            await self._pass_through(agent, original, tcp_group)
            return
        try:
            hello = await read_hello(agent, self._limits.opening_seconds)
        except Malformed as error:
            await self._deny(agent, UNREADABLE, error.message, original)
            return
        if hello is None:
            handler = RedirectedRouter(original, self._destinations, self.unknown)
            agent.hand_to(server.within(handler.serve))
        else:
            await self._dispatch_tls(agent, server, original, hello)

    async def _pass_through(
        self, agent: BufferedConnection, original: Authority, group: SourceGroup
    ) -> None:
        endpoint = self._destinations.sole_endpoint(group) if group.rows else None
        if endpoint is None:
            reason = "several sources have this port, and none of them this address"
            await self._deny(agent, UNKNOWN, reason, original)
        else:
            await pass_through(agent, endpoint)

    async def _dispatch_tls(
        self, agent: BufferedConnection, server: Connections, original: Authority, hello: Hello
    ) -> None:
        name = hello.server_name
        problem = self._dispatch.name_problem(hello)
        if problem is not None or name is None:
            assert problem is not None
            await self._dispatch.refuse(agent, *problem, requested_source("https", original))
            return
        # The name isn't checked against the original address: resolvers answer differently, so a
        # check would deny honest agents, and the connection leads where the configuration says
        # anyway.
        where = Authority(name, original.port)
        group = self._destinations.table.at(where)
        if group is None:
            reason = "no configured source has this name and port"
            await self._dispatch.refuse(agent, UNKNOWN, reason, requested_source("https", where))
            return
        endpoint = self._destinations.sole_endpoint(group)
        who = self.unknown.default if endpoint is None else endpoint.who
        await self._dispatch.run(agent, server.within, Destination(where, group, who), None)

    async def _deny(
        self,
        agent: BufferedConnection,
        policy_name: str,
        reason: str,
        original: Authority | None,
    ) -> None:
        """Record the denial, unless the agent left without sending anything, and reset the
        connection."""
        if agent.buffered or not agent.ended:
            source = None if original is None else requested_source("tcp", original)
            await self.unknown.record(policy_name, reason, source)
        reset(agent.transport)
