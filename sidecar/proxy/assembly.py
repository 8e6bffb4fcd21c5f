"""All ways through the sidecar to its data sources, put together: the sources, each once, and the
ports that lead to them.

Knows which parts there are, and their order: sources open before their ports and close after them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policies.ground.clock import Clock
from policies.ground.listen_address import ListenAddress
from sidecar.enforce import Enforcer
from sidecar.http.body_budget import BodyBudget
from sidecar.http.tls_contexts import server_context
from sidecar.identity import AgentIdentity
from sidecar.proxy.background_tasks import BackgroundTasks
from sidecar.proxy.downstream.connection_acceptor import ConnectionAcceptor, UnreadPort
from sidecar.proxy.forward_proxy import ForwardProxy
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.listener import ProxyListener
from sidecar.proxy.pipeline.passthrough import Passthrough
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import SourceTable
from sidecar.proxy.routing.unknown_destination import UnknownDestination
from sidecar.proxy.routing.virtual_hosts import VirtualHosts
from sidecar.proxy.tunnel.connect import Connect
from sidecar.proxy.tunnel.fixed_destination import NamedDestinations
from sidecar.proxy.tunnel.transparent import Meant, Transparent, by_socket, twin_of
from sidecar.proxy.tunnel.tunnel_dispatch import TunnelDispatch
from sidecar.proxy.upstream.egress_policy import Egress
from sidecar.proxy.worker_thread import WorkerThread
from sidecar.settings.model import Source

FORWARD_PROXY, TRANSPARENT = "forward_proxy", "transparent"


class ProxyPorts(NamedTuple):
    """The ways on which an agent says by name where it means to go. `hidden` is whether a TLS hello
    may hide that name; `meant` tells where a redirected connection was to go."""

    forward_proxy: ListenAddress | None
    hidden: bool = False
    transparent: ListenAddress | None = None
    meant: Meant = by_socket


NOT_NAMED = ProxyPorts(None)


class Proxy:
    """The ways to `sources` for one agent."""

    def __init__(
        self,
        sources: Iterable[Source],
        agent: AgentIdentity,
        enforcer: Enforcer,
        clock: Clock,
        egress: Egress,
        limits: ProxyLimits = LIMITS,
        named: ProxyPorts = NOT_NAMED,
        bodies: BodyBudget | None = None,
    ) -> None:
        """`bodies` limits what request bodies hold together; without one, that of these ways."""
        bodies = bodies or BodyBudget(limits.held_bytes)
        self._agent = agent
        self._enforcer = enforcer
        self._egress = egress
        self._limits = limits
        self._worker = WorkerThread()
        self._sources = [
            SourceEndpoint(source, agent, enforcer, clock, egress, self._worker, limits, bodies)
            for source in sources
        ]
        self._ports: dict[str, ProxyListener] = {}
        for listen, guarded in self._by_port():
            made = self._reverse(listen, guarded)
            self._ports |= {each.source.alias: made for each in guarded}
        if named.forward_proxy is not None:
            self._ports[FORWARD_PROXY] = self._forward(named.forward_proxy, named)
        if named.transparent is not None:
            self._ports[TRANSPARENT] = self._transparent(named.transparent, named)

    async def start(self) -> None:
        """Opens the ports. Raises `OSError` where one is taken, `RuntimeError` where a server does
        not behave as it was told to."""
        for guarded in self._sources:
            await guarded.open()
        for port in dict.fromkeys(self._ports.values()):
            self._egress.own.add(await port.start())

    def port(self, alias: str) -> int:
        """The port on which this source is found, or that of `FORWARD_PROXY` or `TRANSPARENT`."""
        return self._ports[alias].port

    @property
    def agent_connections(self) -> int:
        """How many of agents are open."""
        return sum(each.connections for each in set(self._ports.values()))

    @property
    def source_connections(self) -> int:
        """How many to data sources are open, in use or at rest."""
        return sum(each.connections for each in self._sources)

    @property
    def received(self) -> int:
        """Bytes that came from agents."""
        return sum(each.flow.received for each in self._flowing())

    @property
    def sent(self) -> int:
        """Bytes that went to agents."""
        return sum(each.flow.sent for each in self._flowing())

    async def close(self, seconds: float) -> None:
        """Takes no more connections, lets what is under way finish for `seconds`, then ends it."""
        try:
            await asyncio.gather(*(each.close(seconds) for each in set(self._ports.values())))
        finally:
            for guarded in self._sources:
                await guarded.close()
            self._worker.close()

    def _flowing(self) -> list[ProxyListener | Passthrough]:
        """What counts bytes: the ports, and what joins connections past them."""
        return [*set(self._ports.values()), *(each.opaque for each in self._sources)]

    def _by_port(self) -> list[tuple[ListenAddress, Sequence[SourceEndpoint]]]:
        found: dict[ListenAddress, list[SourceEndpoint]] = {}
        apart: list[tuple[ListenAddress, Sequence[SourceEndpoint]]] = []
        for guarded in self._sources:
            listen = guarded.source.listen
            if listen is None:
                continue
            if listen.port:
                found.setdefault(listen, []).append(guarded)
            else:
                # The system chooses one for each.
                apart.append((listen, [guarded]))
        return [*found.items(), *apart]

    def _reverse(self, listen: ListenAddress, guarded: Sequence[SourceEndpoint]) -> ProxyListener:
        first = guarded[0]
        pair = first.source.listen_tls
        tls = None if pair is None else server_context(pair)
        if len(guarded) == 1 and first.source.path is None and first.source.kind != "tcp":
            handler, record, short_way = first.gate.serve, first.record, first.short_way
            return ProxyListener(
                listen, handler, record, self._limits, short_way=short_way, tls=tls
            )
        outside = UnknownDestination(str(listen), self._agent, self._enforcer)
        if first.source.kind == "tcp":
            errands = BackgroundTasks()
            arrivals = UnreadPort(first, outside, errands, self._limits)
            return self._arriving(listen, arrivals, errands)
        switch = VirtualHosts(listen, guarded, outside)
        return ProxyListener(listen, switch.serve, outside.record, self._limits, tls=tls)

    def _forward(self, listen: ListenAddress, named: ProxyPorts) -> ProxyListener:
        outside, errands, passage = self._passage(listen, named)
        connect = Connect(passage, outside, errands, self._limits)
        proxy = ForwardProxy(passage.places, outside, connect)
        return ProxyListener(listen, proxy.serve, outside.record, self._limits, errands=errands)

    def _transparent(self, listen: ListenAddress, named: ProxyPorts) -> ProxyListener:
        outside, errands, passage = self._passage(listen, named)
        own = self._egress.own
        arrivals = Transparent(passage, outside, errands, own, self._limits, named.meant)
        return self._arriving(listen, arrivals, errands, twin_of(listen))

    def _arriving(
        self,
        listen: ListenAddress,
        arrivals: ConnectionAcceptor,
        errands: BackgroundTasks,
        twin: str | None = None,
    ) -> ProxyListener:
        return ProxyListener(
            listen,
            arrivals.serve,
            arrivals.outside.record,
            self._limits,
            errands=errands,
            arrivals=arrivals,
            twin=twin,
        )

    def _passage(
        self, listen: ListenAddress, named: ProxyPorts
    ) -> tuple[UnknownDestination, BackgroundTasks, TunnelDispatch]:
        by_alias = {guarded.source.alias: guarded for guarded in self._sources}
        places = NamedDestinations(SourceTable([each.source for each in self._sources]), by_alias)
        outside, errands = (
            UnknownDestination(str(listen), self._agent, self._enforcer),
            BackgroundTasks(),
        )
        passage = TunnelDispatch(places, outside, errands, self._limits, hidden=named.hidden)
        return outside, errands, passage
