"""A real proxy listener over a real enforcer and spool, in front of a scripted data source."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from policies.definitions.model import Key, Policy, TenantSettings
from policies.ground.addresses import ListenAddress
from policies.ground.clock import Clock
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    PolicySet,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from policies.sets.signed_head import Claim
from policies.trail.spool_chain import read_payload
from sidecar.control.client import ControlClient
from sidecar.decision_preview import DecisionPreview
from sidecar.enforce import Enforcer
from sidecar.http.client.egress_guard import LoopGuard
from sidecar.http.request_body import BodyBudget
from sidecar.live_keys import AgentIdentity, LiveKeys
from sidecar.metrics.metrics import Metrics
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.policy_store import CacheFile
from sidecar.policy_cache.policy_view import AllDocuments, PolicyView
from sidecar.proxy.assembly import NO_NAMED_PORTS, Proxy, ProxyPorts
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.routing.source_endpoint import SharedParts
from sidecar.recorder import Recorder
from sidecar.sessions import SessionRegistry
from sidecar.settings.model import Defaults, HalfClose, Source
from sidecar.settings.sections import MIN_SEGMENT_BYTES, SpoolSettings
from sidecar.spool.spool import Spool
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.scripted_source import DataSource, data_source
from tests.support.waiting import until_async

CLOCK = Clock(now=lambda: time.time_ns() // 1000, monotonic=time.monotonic)


ROLE = "analyst"
RAW_HOSTS = ("a", "api.test", "b", "h", "kb", "kb.test", "tcp.test", "x")
"""The sidecar's `hosts`, by which raw requests of the tests call it."""


def policy(**changes: Any) -> Policy:
    """Return a policy of the role that allows everything up to `high`, but for `changes`."""
    whole: dict[str, Any] = {
        "policy_id": "pol_1",
        "version": 1,
        "name": "analysts-read",
        "agent_role": ROLE,
        "allowed_sources": ("*",),
        "denied_sources": (),
        "max_sensitivity": "high",
    }
    return Policy(**{**whole, **changes})


class Sidecar:
    """An enforcer with its spool, and the agent that speaks through it. `publish` puts the
    tenant's settings in force, `publish_document` any document by its name; `keys` are the
    tenant's, and `key_document` names the agent's. `claims` are those of sessions in the store."""

    def __init__(
        self,
        enforcer: Enforcer,
        spool: Spool,
        agent: AgentIdentity,
        metrics: Metrics,
        publish_document: Callable[[str, bytes | None], None],
        keys: LiveKeys,
        key_document: str,
        claims: dict[str, Claim],
    ) -> None:
        self.claims = claims
        self.key_document = key_document
        self.publish_document = publish_document
        self.keys = keys
        self.enforcer = enforcer
        self.metrics = metrics
        self.own_ports = LoopGuard()
        self.spool = spool
        self.agent = agent

    def publish(self, settings: TenantSettings) -> None:
        self.publish_document("tenant", tenant_document(settings))

    def proxy(
        self,
        sources: Iterable[Source],
        *,
        limits: ProxyLimits = LIMITS,
        named: ProxyPorts = NO_NAMED_PORTS,
        bodies: BodyBudget | None = None,
        clock: Clock = CLOCK,
        half_close: HalfClose = "wait",
    ) -> Proxy:
        """Return a proxy that leads the agent to `sources`; not started. `half_close` is that of
        the `named` ports: the raw clients of the tests end their sending side and wait."""
        shared = SharedParts(
            self.agent,
            self.enforcer,
            clock,
            self.own_ports,
            limits,
            bodies or BodyBudget(),
            hosts=RAW_HOSTS,
        )
        return Proxy(sources, shared, named._replace(half_close=half_close))

    async def records(self) -> list[dict[str, Any]]:
        """Return every record so far, read back from the disk as the control API reads it."""
        return [read_payload(payload).core for payload in await self.payloads()]

    async def payloads(self) -> list[dict[str, Any]]:
        """Return each record as `core`, with the openings of its hidden values (`open`)."""
        await until_async("everything is on disk", lambda: not self.spool.bytes_waiting)
        batch = await self.spool.batch(1 << 30, 1 << 20)
        return [] if batch is None else [orjson.loads(payload) for payload in batch.payloads]

    async def decisions(self) -> list[tuple[str, str, str]]:
        """Return decision, policy name and source of each."""
        return [
            (
                record["pub"]["response"]["decision"],
                record["pub"]["response"]["policy_name"],
                record["pub"]["request"]["source_id"],
            )
            for record in await self.records()
            if record["kind"] == "decision"
        ]

    async def lineage(self, count: int = 1) -> list[dict[str, Any]]:
        """Return `pub` of the lineage records; wait until there are `count`."""
        found: list[dict[str, Any]] = []

        async def enough() -> bool:
            records = await self.records()
            found[:] = [record["pub"] for record in records if record["kind"] == "lineage"]
            return len(found) >= count

        await until_async(f"{count} lineage records", enough)
        return found


@asynccontextmanager
async def sidecar(
    tmp_path: Path, *policies: Policy, spool: SpoolSettings | None = None
) -> AsyncIterator[Sidecar]:
    """Yield a sidecar with these policies, or one that allows everything."""
    key = make_key(os.urandom(32))
    documents = {
        "tenant": tenant_document(TenantSettings("ten_1")),
        role_name(ROLE): role_document(policies or (policy(),)),
        key_name(key_digest(key)): key_document(Key("key_1", "evaluate")),
    }
    policy_set = PolicySet(documents.get)
    policy_set.apply([], 1)
    freshness = Freshness(3600, CLOCK)
    freshness.confirm(CLOCK.monotonic())
    (tmp_path / "cache").mkdir(exist_ok=True)
    # Of thousands of sidecars each fills its segments with zeros: the smallest will do.
    settings = spool or SpoolSettings(tmp_path / "spool", segment_bytes=MIN_SEGMENT_BYTES)
    opened = await Spool.open(settings, "sidecar-test", CLOCK, os.urandom)
    running = asyncio.get_running_loop().create_task(opened.run())
    # There is no control API here: only a session that is claimed already can be used, and nothing
    # else needs one.
    control = await ControlClient("http://127.0.0.1:9", "unused").__aenter__()
    claims: dict[str, Claim] = {}

    async def claim(session_id: str) -> Claim | None:
        return claims.get(session_id)

    file = CacheFile(tmp_path / "cache")
    sessions = SessionRegistry(control, file, documents.get, CLOCK, claim)
    metrics = Metrics(CollectorRegistry())
    view = PolicyView(policy_set, freshness, AllDocuments(), CLOCK.monotonic)
    recorder = Recorder(opened, metrics, CLOCK, os.urandom, view.masks)
    enforcer = Enforcer(DecisionPreview(view, sessions), recorder, metrics, os.urandom)

    def publish(name: str, document: bytes | None) -> None:
        if document is None:
            documents.pop(name, None)
        else:
            documents[name] = document
        policy_set.apply([name], policy_set.revision + 1)
        sessions.changed([name])

    try:
        keys = LiveKeys(policy_set, CLOCK)
        agent = AgentIdentity.of(None, ROLE, key, keys)
        named = key_name(key_digest(key))
        yield Sidecar(enforcer, opened, agent, metrics, publish, keys, named, claims)
    finally:
        await control.__aexit__(None, None, None)
        running.cancel()
        await opened.close(1)


def source(port: int, kind: str = "rest", **changes: Any) -> Source:
    """Return a source named `kb` on a port that the system chooses, with `half_close: wait`: the
    raw clients of the tests end their sending side and wait."""
    whole = Source(
        alias="kb",
        kind="rest",
        upstream=f"http://127.0.0.1:{port}",
        listen=ListenAddress("127.0.0.1", 0),
        sensitivity="medium",
        defaults=Defaults(user="ada"),
        half_close="wait",
    )
    parametrized: Any = kind
    return replace(whole, kind=parametrized, **changes)


@asynccontextmanager
async def listening(
    made: Sidecar, configured: Source, limits: ProxyLimits = LIMITS, clock: Clock = CLOCK
) -> AsyncIterator[int]:
    """Yield the port of a listener. Under uvloop it has an idle connection to the data source, so
    that requests have nothing to wait for; under asyncio's own loop, the first requests open
    one."""
    proxy = made.proxy((configured,), limits=limits, clock=clock)
    await proxy.start()
    if type(asyncio.get_running_loop()).__module__.startswith("uvloop"):
        await warm(proxy)
    try:
        yield proxy.port(configured.alias)
    finally:
        await proxy.close(1)


async def warm(proxy: Proxy, connections: int = 1) -> None:
    """Open idle connections to the data source, if it can be reached."""
    pool = proxy.endpoints[0].upstream.pool
    with contextlib.suppress(OSError):
        for connection in [await pool.connect() for _ in range(connections)]:
            pool.release(connection)


@dataclass
class ProxySetup:
    """A rest listener in front of a scripted data source."""

    port: int
    upstream: DataSource
    sidecar: Sidecar
    unread: tuple[str, ...] = ("rest://kb",)
    """The names under which unreadable requests may be recorded."""

    async def ask(self, data: bytes) -> "Answered":
        return await ask(self.port, data)


@asynccontextmanager
async def proxy_setup(
    tmp_path: Path, *policies: Policy, limits: ProxyLimits = LIMITS, **changes: Any
) -> AsyncIterator[ProxySetup]:
    async with (
        data_source() as upstream,
        sidecar(tmp_path, *policies) as made,
        listening(made, source(upstream.port, **changes), limits) as port,
    ):
        yield ProxySetup(port, upstream, made)
