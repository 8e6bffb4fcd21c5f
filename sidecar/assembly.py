"""The parts of one sidecar, put together. Knows which part is given to which, and starts none."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector

from policies.ground.clock import Clock
from policies.ground.listen_address import ListenAddress
from sidecar.api.dispatch import Dispatcher
from sidecar.api.handlers import Api
from sidecar.api.http_server import HttpServer
from sidecar.api.route import ApiRoute
from sidecar.api.source_catalog import SourceCatalog
from sidecar.control.client import ControlClient
from sidecar.control.clock import ControlClock
from sidecar.control.shipper import Shipper
from sidecar.enforce import Enforcer
from sidecar.http.body_budget import BodyBudget
from sidecar.http.head_digest import KEY_BYTES, HeadDigest
from sidecar.http.loop_guard import LoopGuard
from sidecar.http.response_head import ResponseRenderer
from sidecar.identity import AgentIdentity, LiveKeys
from sidecar.metrics.counters import Observations
from sidecar.metrics.metrics import make_metrics
from sidecar.metrics.readiness import Readiness
from sidecar.platform.key_file import read_key
from sidecar.platform.random_buffer import RandomPool
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.replica import FullReplica, Replica
from sidecar.proxy.assembly import Proxy, ProxyPorts
from sidecar.proxy.upstream.egress_policy import Egress
from sidecar.sessions import SessionRegistry
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool, State
from sidecar.telemetry.collectors import (
    watch_bodies,
    watch_policy_set,
    watch_proxy,
    watch_reports,
    watch_sessions,
    watch_spool,
)
from sidecar.telemetry.status import SidecarStatus
from sidecar.telemetry.status_reporter import StatusReporter


class Listening(Protocol):
    """A port that is open between `start` and `close`."""

    async def start(self) -> None: ...
    async def close(self, seconds: float) -> None: ...


class Components:
    """Everything but the spool, which is opened first. `cache_file`, `copy` and `centre` are to be
    closed;  `listeners` come last and go first."""

    def __init__(
        self,
        settings: SidecarSettings,
        spool: Spool,
        time: ControlClock,
        source: Callable[[int], bytes],
    ) -> None:
        entropy, clock = RandomPool(source), time.clock
        self.cache_file = CacheFile(settings.cache)
        self.centre = ControlClient(
            settings.control, read_key(settings.key_file), settings.control_tls
        )
        # Not the centre's time: how old the set on disk is has to be known before the centre is.
        self._freshness = Freshness(settings.staleness_seconds, time.host)
        self._spool = spool
        self._clock = clock
        self.copy = self._copy(settings, time.host, entropy)
        self._policy_set = self.copy.policy_set
        sessions = SessionRegistry(
            self.centre, self.cache_file, self.copy.fetch, clock, self.copy.told
        )

        def changed(names: Iterable[str] | None) -> None:
            sessions.changed(names)
            self.reporter.wake()

        self.follower = self.copy.follow(changed, sessions.forget)
        self._supply = self.copy.supply()
        self.shipper = Shipper(
            spool,
            self.centre,
            clock,
            tenant_id=self.copy.tenant_id,
            log_keys=self.copy.log_keys,
            compress=settings.compresses,
        )
        self.readiness = Readiness(
            {"policy_set": self._policy_set_problem, "spool": self._spool_problem},
            {"policy_feed": lambda: self.follower.feed},
        )
        standing = SidecarStatus(settings, self.copy, self._freshness, spool, self.readiness)
        self.reporter = StatusReporter(self.centre, time, clock, entropy(8).hex(), standing.told)
        registry = CollectorRegistry()
        self._metrics = make_metrics(registry)
        ProcessCollector(registry=registry)
        watches = Observations(registry)
        watch_policy_set(watches, self._policy_set, self._freshness, self.follower)
        watch_sessions(watches, sessions)
        watch_spool(watches, spool, self.shipper)
        watch_reports(watches, self.reporter)
        self._enforcer = Enforcer(
            self._policy_set,
            self._freshness,
            sessions,
            spool,
            self._metrics,
            clock,
            entropy,
            self._supply,
        )
        self._keys = LiveKeys(self._policy_set, clock)
        self._agent = self._speaking(settings)
        self._answers = ResponseRenderer(clock)
        self._prefix = entropy(4).hex()
        self._own_ports = LoopGuard()
        self._bodies = BodyBudget()
        self._digest = HeadDigest(entropy(KEY_BYTES))
        watch_bodies(watches, self._bodies)
        # Whoever hears at `/health/ready` that the sidecar is ready finds all its ports open.
        self.listeners: list[Listening] = [
            *self._proxies(settings, watches),
            *self._own(settings),
        ]

    def _own(self, settings: SidecarSettings) -> list[HttpServer]:
        readable = SourceCatalog(
            settings.sources,
            self._agent,
            self._policy_set,
            self._enforcer,
            self._freshness,
            self._clock,
        )
        api = Api(self._enforcer, readable, self.readiness, self._metrics)
        if settings.metrics_listen is None:
            routes = {**api.routes(), **api.metrics_routes()}
            return [self._server(settings.listen, routes)]
        return [
            self._server(settings.listen, api.routes()),
            self._server(settings.metrics_listen, api.metrics_routes()),
        ]

    def _server(self, listen: ListenAddress, routes: Mapping[str, ApiRoute]) -> HttpServer:
        dispatcher = Dispatcher(
            routes, self._keys, self._answers, self._metrics, self._prefix, self._supply
        )
        return HttpServer(listen, dispatcher, self._own_ports, self._bodies, self._digest)

    def _speaking(self, settings: SidecarSettings) -> AgentIdentity | None:
        agent = settings.agent
        if agent is None:
            return None
        return AgentIdentity.of(agent.id, agent.role, read_key(agent.key_file), self._keys)

    def _proxies(self, settings: SidecarSettings, watches: Observations) -> list[Proxy]:
        if self._agent is None:
            return []
        egress = Egress(self._own_ports, self._metrics.egress_refused.add)
        ways = Proxy(
            settings.sources,
            self._agent,
            self._enforcer,
            self._clock,
            egress,
            named=ProxyPorts(
                settings.forward_proxy, settings.encrypted_hello == "allow", settings.transparent
            ),
            bodies=self._bodies,
        )
        watch_proxy(watches, ways)
        return [ways]

    def _copy(
        self, settings: SidecarSettings, host: Clock, entropy: Callable[[int], bytes]
    ) -> Replica:
        known = settings, self.centre, self.cache_file, self._freshness, host
        if settings.redis is None:
            return FullReplica(*known)
        # Loaded here, for whoever needs it: the library takes megabytes.
        from sidecar.policy_cache.partial_replica import PartialReplica
        from sidecar.policy_cache.redis_client import connect

        return PartialReplica(*known, entropy, connect(settings.redis))

    def _policy_set_problem(self) -> str | None:
        if self.follower.refused is not None:
            return self.follower.refused
        now = self._clock.monotonic()
        if not self._freshness.stale(now):
            return None
        reason = self._freshness.reason(now)
        return f"{reason}; {self.follower.trouble}" if self.follower.trouble else reason

    def _spool_problem(self) -> str | None:
        if self._spool.refusal is not None:
            return self._spool.refusal
        if self._spool.state is not State.OPEN:
            return "it is full: records wait for the control API, and nothing can be allowed"
        return None
