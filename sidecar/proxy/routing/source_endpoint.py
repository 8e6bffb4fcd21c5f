"""One configured data source with everything that serves it: its protocol, authorizer, pipeline and
connections. There is one endpoint per source, whichever listeners lead to it.

Knows which parts there are. Knows no port, and nothing of what passes through.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Protocol
from urllib.parse import urlsplit

from policies.ground.clock import Clock
from policies.ground.connection_budget import ConnectionBudget
from policies.ground.ids import uuid7
from sidecar.enforce import Enforcer
from sidecar.http.attribution import default_attribution
from sidecar.http.authority import DEFAULT_PORTS
from sidecar.http.client.dialler import Destination, Dialler
from sidecar.http.client.egress_guard import EgressGuard, LoopGuard
from sidecar.http.client.pool import Pool
from sidecar.http.client.request import Origin
from sidecar.http.request_body import BodyBudget
from sidecar.http.tls_contexts import client_context
from sidecar.live_keys import AgentIdentity
from sidecar.postgres.agent import AgentConnection
from sidecar.protocols.registry import load_protocol
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.proxy.connections import BufferedConnection
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.pipeline.authorizer import Authorizer, Refused
from sidecar.proxy.pipeline.classifier import SourceRules
from sidecar.proxy.pipeline.forward import Forwarder
from sidecar.proxy.pipeline.lineage import LineageRecorder
from sidecar.proxy.pipeline.passthrough import Passthrough
from sidecar.proxy.pipeline.pipeline import ProxyPipeline
from sidecar.proxy.pipeline.upstream_sender import UpstreamSender
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.proxy.routing.source_lookup import upstream_parts
from sidecar.proxy.upstream.client import Reachability, TunnelDialler, UpstreamClient
from sidecar.proxy.worker_thread import WorkerThread
from sidecar.settings.model import DEFAULT_CONNECTIONS, HttpVersion, Source

_ID_BYTES = 10


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The objects that all sources of one sidecar share."""

    agent: AgentIdentity
    enforcer: Enforcer
    clock: Clock
    own_ports: LoopGuard
    """The sidecar's own ports, so that no data source can be one of them."""
    limits: ProxyLimits = LIMITS
    bodies: BodyBudget = field(default_factory=BodyBudget)
    """The limit on the bytes of request bodies that are held, over all sources together."""
    connections: ConnectionBudget = field(
        default_factory=lambda: ConnectionBudget(DEFAULT_CONNECTIONS)
    )
    """The limit on the number of connections from agents, and on the bytes of their unfinished
    heads."""
    worker: WorkerThread = field(default_factory=WorkerThread)
    hosts: tuple[str, ...] = ()
    """The sidecar's own host names, by which agents may address the sources' ports."""

    def new_id(self) -> str:
        """Return a new UUIDv7."""
        return uuid7(self.clock.now(), self.enforcer.random_bytes(_ID_BYTES))


class SessionSource(Protocol):
    """Serves agents' connections to a source whose protocol is no HTTP, and is judged."""

    async def serve(self, agent: AgentConnection) -> None:
        """Serve one connection to its end."""


class SourceEndpoint:
    """One configured `source` with the parts that serve it for one agent: pipeline, authorizer,
    upstream connections, passthrough. `who` is the attribution of requests that name no user."""

    def __init__(self, source: Source, shared: SharedParts) -> None:
        self.source = source
        agent, enforcer, limits = shared.agent, shared.enforcer, shared.limits
        self.upstream = upstream_client(source, shared, source.upstream, source.http)
        url = source.grpc_url
        grpc = None if url is None else upstream_client(source, shared, url, "2")
        self._clients = (self.upstream,) if grpc is None else (self.upstream, grpc)
        self._lineage = LineageRecorder(enforcer, shared.clock.monotonic)
        protocol = load_protocol(source, shared.clock.monotonic)
        self.who = default_attribution(source.defaults, agent.default_user)
        whole = SourceNames(source).whole
        self.authorizer = authorizer = Authorizer(
            source.kind, whole, agent, enforcer, reports=source.mode == "report"
        )
        metrics = ProxyMetrics(enforcer.metrics, source.kind)
        metrics.start()
        sender = UpstreamSender(protocol, self.upstream, limits, grpc)
        forwarder = Forwarder(
            protocol, sender, authorizer, self._lineage, metrics, limits, shared.worker
        )
        rules = SourceRules(
            self.who,
            source.writes == "allow",
            source.sensitivity_field,
            source.opaque,
            source.forwards_trailers,
            grpc is not None,
        )
        self.pipeline = ProxyPipeline(protocol, authorizer, forwarder, rules, limits, shared.bodies)
        self.passthroughs = {
            url: Passthrough(
                source, authorizer, self._dialler(url, shared), self._lineage, metrics, limits
            )
            for url in source.urls
        }
        """The passthrough to each URL of the source, for the connections that are not read."""
        self.sessions: SessionSource | None = None
        """What serves the sessions of a source of the kind `postgres`; None for other kinds."""
        if source.kind == "postgres":
            self.sessions = self._sessions(shared)

    def _dialler(self, url: str, shared: SharedParts) -> TunnelDialler:
        """Return the dialler of connections that agents fill themselves, with TLS or a protocol
        other than HTTP."""
        limits = shared.limits

        def tunnel_end() -> BufferedConnection:
            return BufferedConnection(limits.buffer_bytes)

        server = _destination(self.source, url)
        guard = _guard(self.source, url, shared)
        reachability = self.upstream.reachability
        if url != self.source.upstream:
            reachability = _reachability(self.source, url, shared)
        return TunnelDialler(Dialler(server, guard, limits.upstream, tunnel_end), reachability)

    def _sessions(self, shared: SharedParts) -> SessionSource:
        # It needs libraries that are installed only where such a source is configured.
        assembly = import_module("sidecar.proxy.postgres.assembly")
        source, limits = self.source, shared.limits
        server = assembly.Server(
            _destination(source, source.upstream),
            _guard(source, source.upstream, shared),
            self.upstream.reachability,
        )
        sessions: SessionSource = assembly.postgres_source(
            source, server, self.authorizer, self._lineage, self.who, limits, shared.new_id
        )
        return sessions

    async def record(self, policy_name: str, reason: str) -> None:
        """Record a denial under the source's own name, for a connection that gets no answer."""
        await self.authorizer.record(Refused(403, policy_name, reason, self.who))

    @property
    def connections(self) -> int:
        """The number of open connections to the data source."""
        parts = (*self._clients, *self.passthroughs.values())
        return sum(each.connections for each in parts)

    def close(self) -> None:
        """Hand over the lineage that was gathered, and close the connections. Call it after the
        last request."""
        self._lineage.flush()
        for each in self._clients:
            each.close()


def upstream_client(
    source: Source, shared: SharedParts, url: str, http: HttpVersion
) -> UpstreamClient:
    """Return the client that sends requests to the data source at `url`, an address of `source`,
    over the version `http` of HTTP."""
    parts = upstream_parts(url)
    host, port = parts.authority
    name = f"[{host}]" if ":" in host else host
    if port != DEFAULT_PORTS.get(parts.scheme):
        name = f"{name}:{port}"
    tls = parts.scheme == "https"
    limits = shared.limits.upstream._replace(trailers=source.forwards_trailers)

    def pool(version: HttpVersion) -> Pool:
        context = client_context(source.tls, _OFFERED[version]) if tls else None
        destination = _destination(source, url)._replace(context=context)
        return Pool(destination, _guard(source, url, shared), limits, version)

    origin = Origin.of(name, parts.path.rstrip("/"), parts.scheme)
    reachability = _reachability(source, url, shared)
    switching = partial(pool, "1") if tls and http == "auto" else None
    return UpstreamClient(origin, pool(http), shared.limits, reachability, switching)


def _reachability(source: Source, url: str, shared: SharedParts) -> Reachability:
    where = str(upstream_parts(url).authority)
    return Reachability(source.alias, where, shared.clock.monotonic)


# The names of the versions of HTTP in TLS (RFC 9113 section 3.2, RFC 7301 section 6).
_OFFERED: Mapping[HttpVersion, list[str]] = {
    "1": ["http/1.1"],
    "2": ["h2"],
    "auto": ["h2", "http/1.1"],
}


def _destination(source: Source, url: str) -> Destination:
    """Return the destination without TLS."""
    host, port = upstream_parts(url).authority
    return Destination(_resolved_name(url), port, None, source.tls.server_name or host)


def _guard(source: Source, url: str, shared: SharedParts) -> EgressGuard:
    host = upstream_parts(url).authority.host
    count_refusal = shared.enforcer.metrics.egress_refused.add
    monotonic = shared.clock.monotonic
    return EgressGuard(host, source.addresses, shared.own_ports, count_refusal, monotonic)


def _resolved_name(url: str) -> str:
    """Return the host of `url` as it is given to the resolver. It keeps a final dot, which
    `authority` removes: the dot keeps the resolver from trying search domains."""
    host = upstream_parts(url).authority.host
    return f"{host}." if (urlsplit(url).hostname or "").endswith(".") else host
