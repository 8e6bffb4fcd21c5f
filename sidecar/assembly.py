"""Builds the components of one sidecar and connects them. Starts none of them."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector

from policies.definitions.model import Key
from policies.ground.addresses import ListenAddress
from policies.ground.clock import Clock
from policies.ground.connection_budget import ConnectionBudget
from policies.ground.ids import RandomBuffer
from sidecar.api.dispatch import Dispatcher
from sidecar.api.handlers import Api, stop_routes
from sidecar.api.http_server import HttpServer
from sidecar.api.route import ApiPort
from sidecar.api.source_catalog import SourceCatalog
from sidecar.authzen.routes import authzen_routes
from sidecar.control.client import ControlClient
from sidecar.control.clock import ControlClock
from sidecar.control.enroller import Enroller
from sidecar.control.identity import NOT_ENROLLED, ConfiguredIdentity, EnrolledIdentity, Identity
from sidecar.control.log_client import LogClient, PinnedCheckpoint
from sidecar.control.shipper import Shipper
from sidecar.decision_preview import DecisionPreview
from sidecar.doors.assembly import Doors
from sidecar.enforce import Enforcer
from sidecar.heartbeats import Heartbeats
from sidecar.http.client.egress_guard import LoopGuard
from sidecar.http.port_names import PortNames
from sidecar.http.rendered_response import ResponseRenderer
from sidecar.http.request_body import BodyBudget
from sidecar.http.server.head_cache import KEY_BYTES, HeadCache
from sidecar.http.tls_contexts import server_context
from sidecar.key_files import AgentKeyFile, OwnKeyFile
from sidecar.live_keys import AgentIdentity, EnrolledAgent, LiveKeys
from sidecar.metrics.metrics import Metrics, Observations
from sidecar.metrics.readiness import Readiness
from sidecar.platform.key_file import read_key
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full_replica import FullReplica
from sidecar.policy_cache.policy_store import CacheFile
from sidecar.policy_cache.policy_view import FetchFailed, PolicyView
from sidecar.policy_cache.replica import Replica
from sidecar.protocols.shared.source_names import ConfiguredLevels
from sidecar.proxy.assembly import Proxy, ProxyPorts
from sidecar.proxy.routing.source_endpoint import SharedParts
from sidecar.proxy.tunnel.redirect_check import RedirectCheck
from sidecar.recorder import Recorder
from sidecar.sessions import SessionRegistry
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool
from sidecar.telemetry.collectors import (
    watch_budgets,
    watch_certificates,
    watch_enrolment,
    watch_log,
    watch_policy_set,
    watch_proxy,
    watch_readiness,
    watch_redirect,
    watch_reports,
    watch_sessions,
    watch_spool,
    watch_traces,
)
from sidecar.telemetry.standing_denials import StandingDenials, frozen_since, probes
from sidecar.telemetry.status import SidecarStatus, StatusReporter
from sidecar.tracing import SpanExporter, Tracer


class Listening(Protocol):
    """The interface of a listening port. The port is open from `start` until `close`, which lets
    requests in progress finish for up to `seconds`."""

    async def start(self) -> None: ...
    async def close(self, seconds: float) -> None: ...


class Components:
    """All components of one sidecar except the spool, which is opened first and passed in. `stop`
    asks the process to stop.

    Call `close` on this object, on `replica` and on `control` after use. Open `listeners` last, and
    close them first. The constructor is long because it is one list: each component, and the
    arguments it needs.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        spool: Spool,
        time: ControlClock,
        urandom: Callable[[int], bytes],
        stop: Callable[[], None],
    ) -> None:
        random_bytes, clock = RandomBuffer(urandom), time.clock
        self.clock = clock
        self.cache_file = CacheFile(settings.cache)
        self.enroller: Enroller | None = None
        self.identity: Identity = (
            EnrolledIdentity(clock) if settings.enrol else ConfiguredIdentity(settings)
        )
        self.control = ControlClient(settings.control, self.identity.key, settings.control_tls)
        # The host's clock, not the control API's: the age of the set on disk must be known before
        # the control API has answered.
        freshness = Freshness(settings.staleness_seconds, time.host)
        self._spool = spool
        self.replica = self._make_replica(settings, freshness, time.host, random_bytes)
        sessions = SessionRegistry(
            self.control, self.cache_file, self.replica.fetch, clock, self.replica.published_claim
        )

        def changed(names: Iterable[str] | None) -> None:
            sessions.changed(names)
            # A write at the control API may wait until all sidecars report its revision: don't
            # let it wait for the next interval.
            self.reporter.wake()
            self.heartbeats.wake()
            self.standing_denials.wake()
            if self.enroller is not None:
                self.enroller.changed(names)

        self.follower = self.replica.follow(changed, sessions.forget)
        self.policies = PolicyView(
            self.replica.policy_set, freshness, self.replica.document_fetcher(), clock.monotonic
        )
        self._find_agent(settings)
        self.shipper = Shipper(spool, self._log_client(settings), clock)
        # Neither probe asks whether the control API answers: a sidecar that has a fresh policy set
        # and room for records decides without it.
        self._redirect_check = self._make_redirect_check(settings, random_bytes)
        self.readiness = self._make_readiness()
        status = SidecarStatus(
            settings, self.identity, self.replica, freshness, spool, self.readiness
        )
        self.reporter = self._make_reporter(status, settings, time, random_bytes(8).hex())
        self.standing_denials = StandingDenials(
            self.policies,
            self.follower,
            # That mode answers without a record, and so denies nothing for want of room.
            None if settings.spool.mode == "best_effort" else spool,
            self._agent_with_file,
            self.readiness,
            self.reporter.wake,
        )
        observations = self._observe(sessions, settings)
        recorder = Recorder(spool, self.metrics, clock, random_bytes, self.policies.masks)
        self.heartbeats = Heartbeats(recorder, self.policies, clock.monotonic)
        self.exporter = self._make_exporter(settings, observations, random_bytes)
        self.enforcer = self._make_enforcer(settings, sessions, recorder, random_bytes)
        self.enroller = self._make_enroller(settings, observations)
        self._renderer, self._request_id_prefix = ResponseRenderer(clock), random_bytes(4).hex()
        # All listeners share these: no source may lead back to any of the ports, and together
        # the ports hold no more body bytes than the budget.
        self._loop_guard = LoopGuard()
        self.bodies, self.connections = BodyBudget(), ConnectionBudget(settings.max_connections)
        watch_budgets(observations, self.bodies, self.connections)
        self.doors = self._make_doors(settings)
        # The sidecar's own port comes last: when `/health/ready` answers, all ports are open.
        self.listeners: list[Listening] = [
            *self._proxies(settings, observations),
            *([] if self._redirect_check is None else [self._redirect_check]),
            *self._stop_servers(settings, stop),
            *self.doors.listeners,
            *self._own_servers(settings),
        ]

    def close(self) -> None:
        """Close the check doors' connections and the policy set's file. Call this after everything
        else is closed."""
        self.doors.close()
        self.cache_file.close()

    def loops(self) -> dict[str, Awaitable[None]]:
        """Return the coroutines that must run until the process stops, by the name used in errors.
        The loops of the spool and of shipping are not among them."""
        loops: dict[str, Awaitable[None]] = {
            "policy set": self.follower.run(),
            "reports": self.reporter.run(),
            "heartbeats": self.heartbeats.run(),
            "standing denials": self.standing_denials.run(),
            "candidates": self.enforcer.candidate_roles.run(),
        }
        if self.enroller is not None:
            loops["enrolment"] = self.enroller.run()
        if self.agent_key_file is not None:
            loops["agent key"] = self.agent_key_file.run()
        if self.own_key_file is not None:
            loops["own key"] = self.own_key_file.run()
        if self.exporter is not None:
            loops["traces"] = self.exporter.run()
        if self._redirect_check is not None:
            loops["redirect check"] = self._redirect_check.run()
        return loops

    def _log_client(self, settings: SidecarSettings) -> LogClient:
        return LogClient(
            self.control,
            self.replica.tenant_id,
            self.replica.log_keys,
            self.replica.learn_key,
            compress=settings.compresses,
        )

    def _make_reporter(
        self, status: SidecarStatus, settings: SidecarSettings, time: ControlClock, run_id: str
    ) -> StatusReporter:
        monotonic = self.clock.monotonic
        self._pinned = PinnedCheckpoint(settings.cache, self.replica.log_keys, monotonic)
        return StatusReporter(self.control, time, self.clock, run_id, status.snapshot, self._pinned)

    def _observe(self, sessions: SessionRegistry, settings: SidecarSettings) -> Observations:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.metrics = Metrics(registry)
        observations = Observations(registry)
        watch_policy_set(observations, self.policies, self.follower)
        watch_sessions(observations, sessions)
        watch_spool(observations, self._spool, self.shipper, settings.spool.max_bytes)
        watch_certificates(observations, settings, self.clock)
        watch_reports(observations, self.reporter)
        watch_readiness(observations, self.readiness)
        watch_log(observations, self._pinned)
        if self._redirect_check is not None:
            watch_redirect(observations, self._redirect_check)
        return observations

    def _make_exporter(
        self,
        settings: SidecarSettings,
        observations: Observations,
        random_bytes: Callable[[int], bytes],
    ) -> SpanExporter | None:
        if settings.traces is None:
            return None
        tracer = Tracer(settings.traces.sample_ratio, self.clock, random_bytes)
        exporter = SpanExporter(tracer, settings.traces, settings.id)
        watch_traces(observations, exporter)
        return exporter

    def _own_servers(self, settings: SidecarSettings) -> list[HttpServer]:
        catalog = SourceCatalog(settings.sources, self._agent, self.enforcer.preview)
        api = Api(self.enforcer, catalog, self.readiness, self.metrics)
        agents, apart = self.replica.agent_documents(), settings.metrics_listen
        routes = {**api.routes(), **authzen_routes(settings, self.enforcer, agents, self.clock)}
        hosts = settings.own_hosts
        if apart is None:
            routes |= api.metrics_routes()
        answering = self.doors.beside(
            self._dispatcher(ApiPort(routes, PortNames(settings.listen, hosts)))
        )
        tls = None if settings.listen_tls is None else server_context(settings.listen_tls)
        own = HttpServer(
            settings.listen, answering, self._loop_guard, self._heads(), self.connections, tls
        )
        if apart is None:
            return [own]
        return [own, self._server(apart, ApiPort(api.metrics_routes(), PortNames(apart, hosts)))]

    def _stop_servers(
        self, settings: SidecarSettings, stop: Callable[[], None]
    ) -> list[HttpServer]:
        # It has a port of its own, because the API's port is open to the kubelet, and so to the
        # cluster.
        listen = settings.quit_listen
        return [] if listen is None else [self._server(listen, ApiPort(stop_routes(stop), None))]

    def _server(self, listen: ListenAddress, port: ApiPort) -> HttpServer:
        return HttpServer(
            listen, self._dispatcher(port), self._loop_guard, self._heads(), self.connections
        )

    def _dispatcher(self, port: ApiPort) -> Dispatcher:
        return Dispatcher(
            port,
            self._keys,
            self._renderer,
            self.metrics,
            self._request_id_prefix,
            self.policies.document_fetcher,
            self.bodies,
        )

    def _heads(self) -> HeadCache:
        # Each port has a key of its own: equal heads at two ports have no digest in common.
        return HeadCache(self.enforcer.random_bytes(KEY_BYTES))

    def _key_now(self, key: Key) -> Key | None:
        # An enrolled agent's key has no document, and so no digest.
        if self._agent is not None and not key.digest:
            return self._agent.known_key()
        return self._keys.now(key)

    def _find_agent(self, settings: SidecarSettings) -> None:
        """Set up the agent on whose behalf the proxy's ports send requests, and the loops that
        follow the key files if the keys are in files."""
        identity, policies = self.identity, self.policies
        self._speaks_for = partial(identity.speaks_for, policies.policy_set)
        self._keys = keys = LiveKeys(policies.policy_set, self.clock, self._speaks_for)
        self._agent: AgentIdentity | None = None
        self._agent_with_file: AgentIdentity | None = None
        self.agent_key_file: AgentKeyFile | None = None
        self.own_key_file: OwnKeyFile | None = None
        if isinstance(identity, EnrolledIdentity):
            self._agent = EnrolledAgent(identity, settings.id, keys)
        elif isinstance(identity, ConfiguredIdentity) and settings.agent is not None:
            agent_id, role, path = settings.agent.id, settings.agent.role, settings.agent.key_file
            agent = AgentIdentity.of(agent_id, role, read_key(path), keys)
            self._agent = self._agent_with_file = agent
            self.agent_key_file = AgentKeyFile(path, agent, identity, policies)
        if isinstance(identity, ConfiguredIdentity) and settings.key_file is not None:
            own = OwnKeyFile(settings.key_file, identity, keys, policies, settings.id)
            self.own_key_file = own

    def _make_readiness(self) -> Readiness:
        policies, follower = self.policies, self.follower
        found = probes(
            policies,
            follower,
            self._spool,
            self._redirect_check,
            self.identity,
            self._agent_with_file,
        )
        facts = {
            "policy_feed": lambda: follower.feed,
            "tenant": lambda: "active" if frozen_since(policies.policy_set) is None else "frozen",
        }
        return Readiness(found, facts)

    def _make_enroller(
        self, settings: SidecarSettings, observations: Observations
    ) -> Enroller | None:
        identity = self.identity
        if settings.enrol is None or not isinstance(identity, EnrolledIdentity):
            return None

        async def prepare() -> None:
            # Whatever can't be fetched now is fetched by the replica's own loop.
            with suppress(FetchFailed):
                if settings.redis is not None:  # a full replica holds every document
                    await self.policies.document_fetcher.fetch(identity.required)

        token_file = settings.enrol.token_file
        enroller = Enroller(self.control, identity, token_file, self.clock, prepare)
        self.enforcer.denial_of_everything = lambda: identity.problem
        watch_enrolment(observations, enroller, identity)
        return enroller

    def _make_enforcer(
        self,
        settings: SidecarSettings,
        sessions: SessionRegistry,
        recorder: Recorder,
        random_bytes: Callable[[int], bytes],
    ) -> Enforcer:
        if settings.given_least_documents:
            sessions.receives_revocations_of = self._speaks_for
        preview = DecisionPreview(
            self.policies,
            sessions,
            ConfiguredLevels(settings.sources).level,
            self._speaks_for,
            enrolled=settings.enrol is not None,
        )
        tracer = None if self.exporter is None else self.exporter.tracer
        enforcer = Enforcer(preview, recorder, self.metrics, random_bytes, tracer)
        enforcer.key_now = self._key_now
        return enforcer

    def _make_doors(self, settings: SidecarSettings) -> Doors:
        # Without an agent in the settings, no door speaks with its key.
        agent = self._agent or AgentIdentity(None, NOT_ENROLLED, b"", self._keys)
        shared = self._shared_parts(agent, settings.hosts)
        prefix = self._request_id_prefix

        def ready() -> bool:
            return not self.readiness.problems()

        return Doors(settings, shared, self._keys, self._renderer, prefix, self._heads, ready)

    def _proxies(self, settings: SidecarSettings, observations: Observations) -> list[Proxy]:
        if self._agent is None:
            return []
        shared = self._shared_parts(self._agent, settings.hosts)
        named = ProxyPorts(
            settings.forward_proxy,
            settings.encrypted_hello == "allow",
            settings.transparent,
            redirect_check=self._redirect_check,
            half_close=settings.half_close,
        )
        proxy = Proxy(settings.sources, shared, named)
        watch_proxy(observations, proxy)
        return [proxy]

    def _shared_parts(self, agent: AgentIdentity, hosts: tuple[str, ...]) -> SharedParts:
        return SharedParts(
            agent,
            self.enforcer,
            self.clock,
            self._loop_guard,
            bodies=self.bodies,
            connections=self.connections,
            hosts=hosts,
        )

    def _make_redirect_check(
        self, settings: SidecarSettings, random_bytes: Callable[[int], bytes]
    ) -> RedirectCheck | None:
        def changed() -> None:
            self.reporter.wake()  # the fleet's list should not wait for the next report

        seconds = settings.redirect_check_seconds
        return RedirectCheck(seconds, random_bytes, changed, self.clock) if seconds else None

    def _make_replica(
        self,
        settings: SidecarSettings,
        freshness: Freshness,
        host: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> Replica:
        if settings.redis is None:
            return FullReplica(settings, self.control, self.cache_file, freshness, host)
        # Imported only when needed: the Redis library takes megabytes.
        from sidecar.policy_cache.partial_replica.replica import PartialReplica, connect_redis

        return PartialReplica(
            settings,
            (self.control, self.identity),
            self.cache_file,
            freshness,
            host,
            random_bytes,
            connect_redis(settings.redis),
        )
