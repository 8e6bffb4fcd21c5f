"""One configured data source and what stands before it: its protocol, its judge, its gate, its
connections. There is one of these a source, whichever of the ways in leads to it.

Knows which parts there are. Knows no port, and nothing of what passes through.
"""

from policies.ground.clock import Clock
from sidecar.enforce import Enforcer
from sidecar.http.attribution import default_attribution
from sidecar.http.body_budget import BodyBudget
from sidecar.http.head_digest import KEY_BYTES, HeadDigest
from sidecar.identity import AgentIdentity
from sidecar.protocols.registry import load_protocol
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import Authorizer, Refused
from sidecar.proxy.pipeline.fast_path import FastPath
from sidecar.proxy.pipeline.forward import Forwarder
from sidecar.proxy.pipeline.lineage import LineageRecorder
from sidecar.proxy.pipeline.passthrough import Passthrough
from sidecar.proxy.pipeline.pipeline import ProxyPipeline
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.proxy.routing.source_lookup import upstream_parts
from sidecar.proxy.upstream.client import UpstreamClient
from sidecar.proxy.upstream.dialler import Dialler
from sidecar.proxy.upstream.egress_policy import Egress, Guard
from sidecar.proxy.worker_thread import WorkerThread
from sidecar.settings.model import Source


class SourceEndpoint:
    """`source` behind its `gate`, for one agent; `who` asks where a request does not say."""

    def __init__(
        self,
        source: Source,
        agent: AgentIdentity,
        enforcer: Enforcer,
        clock: Clock,
        egress: Egress,
        worker: WorkerThread,
        limits: ProxyLimits,
        bodies: BodyBudget,
    ) -> None:
        self.source = source
        host = upstream_parts(source.upstream).authority.host
        guard = Guard(host, source.addresses, egress)
        self._upstream = UpstreamClient(
            source.upstream, Dialler(source.upstream, source.tls, guard, limits), limits
        )
        # For those who speak TLS, or no HTTP, through a connection that we only open.
        unread = Dialler(source.upstream, source.tls, guard, limits, raw=True)
        self._unread = unread
        self._lineage = LineageRecorder(enforcer)
        dialect = load_protocol(source, clock.monotonic)
        self.who = default_attribution(source.defaults, agent.id or agent.role)
        reports = source.mode == "report"
        whole = SourceNames(source).whole
        self.judge = judge = Authorizer(source.kind, whole, agent, enforcer, reports=reports)
        traffic = ProxyMetrics(enforcer.metrics, source.kind)
        self.gate = ProxyPipeline(
            dialect,
            judge,
            Forwarder(
                dialect,
                self._upstream,
                judge,
                self._lineage,
                traffic,
                clock.monotonic,
                limits,
                worker,
            ),
            self.who,
            limits,
            bodies,
            writes=source.writes == "allow",
            marked=source.sensitivity_field,
        )
        self.short_way = FastPath(self.gate, HeadDigest(enforcer.random_bytes(KEY_BYTES)))
        self.opaque = Passthrough(source, judge, unread, self._lineage, traffic, limits)

    async def record(self, policy_name: str, reason: str) -> None:
        """Records a denial that nobody can be told of, under the source's own name."""
        await self.judge.record(Refused(403, policy_name, reason, self.who))

    @property
    def connections(self) -> int:
        """How many to the data source are open."""
        return self._upstream.connections + self.opaque.connections

    async def open(self) -> None:
        """Before the first request; connects to nothing yet."""
        await self._upstream.open()
        self._unread.open()

    async def close(self) -> None:
        """After the last request: hands over what is to be recorded, and closes connections."""
        self._lineage.flush()
        await self._upstream.close()
        await self._unread.close()
