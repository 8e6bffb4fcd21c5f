"""Assembles the proxy: one endpoint per source, and the listeners that lead to them.

Knows the parts and their order: endpoints open before the listeners, and close after them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policies.ground.addresses import ListenAddress
from sidecar.http.server.head_cache import KEY_BYTES, HeadCache
from sidecar.http.server.request import Serve
from sidecar.http.tls_contexts import server_context
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.proxy.downstream import BackgroundTasks, HttpService, ProxyListener, TcpAcceptor
from sidecar.proxy.forward_proxy import Connect, ForwardProxy
from sidecar.proxy.pipeline.passthrough import Passthrough
from sidecar.proxy.routing.refused_destination import NamedPort, UnknownDestination, names_of_port
from sidecar.proxy.routing.source_endpoint import SharedParts, SourceEndpoint
from sidecar.proxy.routing.source_lookup import SourceTable
from sidecar.proxy.routing.source_router import NamedDestinations, SharedPortRouter
from sidecar.proxy.tunnel.redirect_check import RedirectCheck
from sidecar.proxy.tunnel.transparent import (
    DestinationLookup,
    Transparent,
    ipv6_twin,
    socket_destination,
)
from sidecar.proxy.tunnel.tunnel_dispatch import TunnelDispatch
from sidecar.settings.model import UNREAD_KINDS, HalfClose, Source

FORWARD_PROXY, TRANSPARENT = "forward_proxy", "transparent"


def grpc_listener(alias: str) -> str:
    """Return the name of the listener at the `grpc_listen` of the source with this alias."""
    return f"{alias} grpc"  # no alias contains a space


class ProxyPorts(NamedTuple):
    """The forward proxy's port and the transparent port, where a request or a connection itself
    names the destination, and their settings; a port is None if it isn't configured.
    `allow_encrypted_hello` permits a TLS hello to hide the server's name. `original_destination`
    finds where a redirected connection was going, and `redirect_check` proves that connections are
    redirected. `half_close` says what it means that an agent ends its sending side."""

    forward_proxy: ListenAddress | None
    allow_encrypted_hello: bool = False
    transparent: ListenAddress | None = None
    original_destination: DestinationLookup = socket_destination
    redirect_check: RedirectCheck | None = None
    half_close: HalfClose = "cancel"


NO_NAMED_PORTS = ProxyPorts(None)


class Proxy:
    """The listeners and endpoints through which one agent reaches `sources`. `shared` holds what
    all sources use; `named` are the ports at which the destination is named."""

    def __init__(
        self,
        sources: Iterable[Source],
        shared: SharedParts,
        named: ProxyPorts = NO_NAMED_PORTS,
    ) -> None:
        self._shared = shared
        self._limits = shared.limits
        self.endpoints = [SourceEndpoint(source, shared) for source in sources]
        self.listeners: dict[str, ProxyListener] = {}
        """The listeners by name: the alias of each source that a listener leads to, for its
        `grpc_listen` what `grpc_listener` returns, or `FORWARD_PROXY` or `TRANSPARENT`."""
        for listen, endpoints in self._by_port():
            listener = self._reverse(listen, endpoints)
            self.listeners |= {each.source.alias: listener for each in endpoints}
        for endpoint in self.endpoints:
            if endpoint.source.grpc_listen is not None:
                listener = self._of_one(endpoint.source.grpc_listen, endpoint)
                self.listeners[grpc_listener(endpoint.source.alias)] = listener
        if named.forward_proxy is not None:
            self.listeners[FORWARD_PROXY] = self._forward(named.forward_proxy, named)
        if named.transparent is not None:
            self.listeners[TRANSPARENT] = self._transparent(named.transparent, named)

    async def start(self) -> None:
        """Open all ports. Raises `OSError` if one of them is taken."""
        for listener in dict.fromkeys(self.listeners.values()):
            # From now on no source may lead back to this port.
            self._shared.own_ports.add(await listener.start())

    def port(self, name: str) -> int:
        """Return the number of the port that leads to the source with this alias; of its other
        port, for `grpc_listener(alias)`; or of the forward proxy's or the transparent port, for
        `FORWARD_PROXY` or `TRANSPARENT`."""
        return self.listeners[name].port

    @property
    def agent_connections(self) -> int:
        """The number of open connections from agents."""
        return sum(each.connections for each in set(self.listeners.values()))

    @property
    def source_connections(self) -> int:
        """The number of open connections to data sources, in use or idle."""
        return sum(each.connections for each in self.endpoints)

    @property
    def received(self) -> int:
        """The number of bytes received from agents since the start."""
        return sum(each.flow.received for each in self._counting())

    @property
    def sent(self) -> int:
        """The number of bytes sent to agents since the start."""
        return sum(each.flow.sent for each in self._counting())

    async def close(self, seconds: float) -> None:
        """Stop accepting connections, let requests finish for up to `seconds`, then cut off those
        that are left."""
        try:
            await asyncio.gather(*(each.close(seconds) for each in set(self.listeners.values())))
        finally:
            # After the listeners: requests under way still use these connections, and add to the
            # lineage that is handed over here.
            for endpoint in self.endpoints:
                endpoint.close()
            self._shared.worker.close()

    def _counting(self) -> list[ProxyListener | Passthrough]:
        """Return the parts that count bytes: the listeners count HTTP, and passthroughs count the
        connections that aren't parsed."""
        through = (each for endpoint in self.endpoints for each in endpoint.passthroughs.values())
        return [*set(self.listeners.values()), *through]

    def _by_port(self) -> list[tuple[ListenAddress, Sequence[SourceEndpoint]]]:
        shared: dict[ListenAddress, list[SourceEndpoint]] = {}
        separate: list[tuple[ListenAddress, Sequence[SourceEndpoint]]] = []
        for endpoint in self.endpoints:
            listen = endpoint.source.listen
            if listen is None:
                continue
            if listen.port:
                shared.setdefault(listen, []).append(endpoint)
            else:
                # Port 0: the system chooses a different port for each source.
                separate.append((listen, [endpoint]))
        return [*shared.items(), *separate]

    def _reverse(self, listen: ListenAddress, endpoints: Sequence[SourceEndpoint]) -> ProxyListener:
        first, budget = endpoints[0], self._shared.connections
        limits = self._limits.of_listener(first.source.half_close)
        pair = first.source.listen_tls
        tls = None if pair is None else server_context(pair)
        unknown = self._unknown(listen)
        if first.source.kind in UNREAD_KINDS:
            acceptor = TcpAcceptor(first, unknown, BackgroundTasks(), limits)
            return ProxyListener(listen, acceptor, self._heads(), budget, limits)
        if len(endpoints) == 1 and first.source.path is None:
            return self._of_one(listen, first)
        router = SharedPortRouter(listen, endpoints, unknown)
        serve = self._under_own_names(router.serve, listen, endpoints, unknown)
        service = HttpService(serve, unknown.record, tls)
        return ProxyListener(listen, service, self._heads(), budget, limits)

    def _of_one(self, listen: ListenAddress, endpoint: SourceEndpoint) -> ProxyListener:
        """Return the listener of a port on which every request is for this source, so that none has
        to find it first."""
        serve = self._under_own_names(
            endpoint.pipeline.serve, listen, [endpoint], self._unknown(listen)
        )
        pair = endpoint.source.listen_tls
        tls = None if pair is None else server_context(pair)
        service = HttpService(serve, endpoint.record, tls)
        limits = self._limits.of_listener(endpoint.source.half_close)
        return ProxyListener(listen, service, self._heads(), self._shared.connections, limits)

    def _under_own_names(
        self,
        serve: Serve,
        listen: ListenAddress,
        endpoints: Sequence[SourceEndpoint],
        unknown: UnknownDestination,
    ) -> Serve:
        sources = [each.source for each in endpoints]
        names = names_of_port(listen, sources, self._shared.hosts)
        refused = self._shared.enforcer.metrics.foreign_requests
        whole = SourceNames(endpoints[0].source).whole if len(endpoints) == 1 else None
        return NamedPort(names, serve, unknown, refused, whole).serve

    def _forward(self, listen: ListenAddress, named: ProxyPorts) -> ProxyListener:
        tasks, unknown = BackgroundTasks(), self._unknown(listen)
        dispatch = self._dispatch(unknown, tasks, named)
        connect = Connect(dispatch, unknown, tasks, self._limits)
        proxy = ForwardProxy(dispatch.destinations, unknown, connect)
        service = HttpService(proxy.serve, unknown.record, background_tasks=tasks)
        limits = self._limits.of_listener(named.half_close)
        return ProxyListener(listen, service, self._heads(), self._shared.connections, limits)

    def _transparent(self, listen: ListenAddress, named: ProxyPorts) -> ProxyListener:
        tasks, unknown = BackgroundTasks(), self._unknown(listen)
        dispatch = self._dispatch(unknown, tasks, named)
        acceptor = Transparent(
            dispatch,
            unknown,
            tasks,
            self._shared.own_ports,
            self._limits,
            named.original_destination,
            check=named.redirect_check,
        )
        return ProxyListener(
            listen,
            acceptor,
            self._heads(),
            self._shared.connections,
            self._limits.of_listener(named.half_close),
            ipv6_twin(listen),
        )

    def _dispatch(
        self, unknown: UnknownDestination, tasks: BackgroundTasks, named: ProxyPorts
    ) -> TunnelDispatch:
        destinations = NamedDestinations(
            SourceTable([each.source for each in self.endpoints]),
            {each.source.alias: each for each in self.endpoints},
        )
        allow = named.allow_encrypted_hello
        return TunnelDispatch(
            destinations, unknown, tasks, self._limits, allow_encrypted_hello=allow
        )

    def _heads(self) -> HeadCache:
        # Each port has a key of its own: equal heads at two ports have no digest in common.
        return HeadCache(self._shared.enforcer.random_bytes(KEY_BYTES))

    def _unknown(self, listen: ListenAddress) -> UnknownDestination:
        return UnknownDestination(str(listen), self._shared.agent, self._shared.enforcer)
