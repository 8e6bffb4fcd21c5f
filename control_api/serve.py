"""Runs the service: open resources > start loops > listen; then drain, in reverse.

If a background loop dies, the process ends. SIGTERM and SIGINT make the service drain: it takes no
new connections, answers the long polls that wait for a change, gives other requests a deadline, and
commits the records handed to the log.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from control_api.alerts.deliver import DeliveryLoop
from control_api.alerts.evaluator import AlertEvaluator
from control_api.assembly import Opened, Parts, assemble, authenticator, superadmin_digest
from control_api.audit.export_push.target_loop import ExportParts, ExportPush
from control_api.audit.verification_operations import standing_headers
from control_api.console.pages import PAGES
from control_api.console.pipeline import ConsolePipeline
from control_api.console.sessions import ConsoleSessions
from control_api.edge.pipeline import RequestPipeline
from control_api.edge.request_shell import RequestShell
from control_api.edge.route import Route
from control_api.edge.router import Bundles
from control_api.edge.server import ApiListener, RequestHandler
from control_api.features import Features
from control_api.log import log_key
from control_api.log.append import Log
from control_api.log.checkpoints.loop import CheckpointLoop
from control_api.log.tenant_change import publish_settings
from control_api.metrics.metrics import ConnectionMetrics
from control_api.policy.reload import PolicyDirectory
from control_api.purge import PurgeParts, RetentionLoop
from control_api.registry.key_expiry import KeyExpiry
from control_api.routes import routes_of
from control_api.service import METRICS
from control_api.settings import Settings
from control_api.signin.console_session import SessionReader
from control_api.store.opening import explain_startup_faults, opened_store
from control_api.store.queries import tenant_rows
from control_api.store.queries.tenant_rows import Installation
from control_api.store.store import Store
from control_api.tenants.bootstrap import FirstKeys, first_start
from control_api.worker_args import WorkerArgs, inherited
from policies.ground.addresses import ListenAddress
from policies.ground.clock import Clock
from policies.ground.connection_budget import ConnectionBudget
from policies.ground.process.secret_file import make_directory
from policies.ground.process.tls_files import RenewingContext, seconds_left

# Objects that may accumulate before the garbage collector runs. A batch of records decodes into
# some ten thousand, which reference counting frees as soon as the batch is ingested.
GC_THRESHOLD = 20_000
DRAIN_SECONDS = 10.0
_log = logging.getLogger("sluice.serve")


class LoopEnded(Exception):
    """a loop ended that should run as long as the service"""


@dataclass(frozen=True, slots=True)
class Started:
    """The facts that the operator is told after the start: the addresses that the service listens
    on, and the keys that it created."""

    listen: ListenAddress
    metrics_listen: ListenAddress | None
    first_keys: FirstKeys | None


async def serve(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    announce: Callable[[Started], None],
    stop: asyncio.Event | None = None,
    worker: WorkerArgs | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until `stop` is set. `worker` is this process's place among
    several, or None if it is the only one. If the service can't start, raise the reason; if a loop
    dies, raise an `ExceptionGroup`."""
    stop = stop or _on_signals()
    make_directory(settings.data_dir)
    async with opened_store(settings, clock, stop) as store:
        if store is not None:
            await _run(settings, clock, entropy, store, announce, stop, worker)
    _log.info("stopped")


def _works_with(settings: Settings, public: bytes) -> str:
    """Return a log line about the database, Redis, checkpoint store and signing key in use, by
    which an operator can compare replicas. It holds no address with a password."""
    database = "SQLite" if settings.database_url.startswith("sqlite") else "PostgreSQL"
    redis = "with" if settings.redis_url else "without"
    return (
        f"{database}, {redis} Redis; checkpoints in `{settings.checkpoint_store}`; the signing "
        f"key's SHA-256 is {sha256(public).hexdigest()}"
    )


async def _run(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    store: Store,
    announce: Callable[[Started], None],
    stop: asyncio.Event,
    worker: WorkerArgs | None,
) -> None:
    async with explain_startup_faults(settings):
        ring = log_key.open_or_make(settings.data_dir, settings.keys_dir)
        installed, first_keys = await first_start(store, settings, entropy)
        await log_key.ensure_database_key(store, ring, settings.keys)
        opened = Opened(store, installed, await Log.open(store), ring)
        parts = assemble(settings, clock, entropy, opened, worker)
        features = Features.on(parts)
        await _publish_all_settings(parts)
    exports = ExportPush(
        ExportParts(
            store,
            clock,
            entropy,
            parts.instruments.exports,
            settings.export_urls,
            settings.database_url.startswith("sqlite"),
            parts.stopping,
        )
    )
    first = worker is None or worker.index == 0
    if first:
        _log.info(_works_with(settings, ring.signer.public))
    loops = await _start_loops(parts, features, exports, first=first)
    listeners = await _listen(parts, features, installed, worker)
    if parts.peer_metrics is not None:
        await parts.peer_metrics.open()
    # Everything loaded so far stays until the end. Once it is frozen, the collector skips it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    try:
        # The ports are bound: a client that learns the addresses can connect.
        addresses = [listener.address for listener in listeners]
        announce(Started(addresses[0], addresses[1] if addresses[1:] else None, first_keys))
        await stop.wait()
        _log.info("stopping: no more requests are accepted")
    finally:
        # Drain first, while the loops still run: requests under way may depend on their work.
        await _drain(parts, listeners)
        await exports.ended()
        if parts.peer_metrics is not None:
            parts.peer_metrics.close()
        for task in loops:
            task.cancel()
        await parts.analyses.close()
        if parts.publishing is not None:
            await parts.publishing.close()
        if parts.tracer is not None:
            # It waits for its thread; the collector may be away.
            await asyncio.to_thread(parts.tracer.close)


async def _start_loops(
    parts: Parts, features: Features, exports: ExportPush, *, first: bool
) -> list[asyncio.Task[None]]:
    """Start the background loops, then load the policy files. Some loops run in the `first` worker
    only."""
    settings, store, entropy = parts.settings, parts.store, parts.entropy
    clock, new_id, jobs = parts.clock, parts.changes.new_id, parts.instruments.jobs
    metrics, maker = parts.instruments.checkpoints, parts.checkpoints
    metrics.diverged.set_function(lambda: len(maker.diverged))
    metrics.stores_differ.set_function(lambda: maker.store_is_split)
    policies = features.policies
    jobs.refused_files.set_function(lambda: len(policies.refused_files))
    offer = parts.cosigner.offer
    signing = CheckpointLoop(
        store, maker, settings.checkpoint_seconds, new_id, metrics.outcome, offer
    )
    files = None
    if settings.policy_dir:
        files = PolicyDirectory(policies, settings.policy_dir, parts.stopping)
    purging = PurgeParts(
        store,
        parts.ring,
        maker,
        parts.reports,
        parts.owners,
        features.signin,
        entropy,
        new_id,
        jobs.purges,
    )
    loops = [
        store.group.create_task(_forever(loop, parts.stopping))
        for loop in (
            parts.tenants.follow,
            parts.tenants.follow_notices,
            *((parts.notices.run,) if parts.notices else ()),
            *((files.watch,) if files else ()),
            AlertEvaluator(features.alerts).run,
            DeliveryLoop(features.alerts).run,
            RetentionLoop(purging).run,
            *((signing.run, parts.impact.run, exports.run) if first else ()),
            *((parts.cosigner.run,) if first and settings.witnesses else ()),
            KeyExpiry(store, clock, entropy, jobs).run,
            parts.folding.run,
            parts.verification.run,
            parts.verification.run_asked,
            *parts.enrolments.loops,
            *(parts.publishing.loops if parts.publishing else ()),
        )
    ]
    if files is not None:
        # After one turn of the event loop the watch has begun, so a change during `load` is seen.
        await asyncio.sleep(0)
        async with explain_startup_faults(settings):
            await files.load()
    return loops


async def _publish_all_settings(parts: Parts) -> None:
    """Publish every tenant's settings again, because the environment may have changed since the
    last start."""
    async with parts.store.reading_all_tenants() as connection:
        everyone = await tenant_rows.ids(connection)
    for tenant_id in everyone:
        await publish_settings(parts.store, parts.settings, tenant_id)


async def _listen(
    parts: Parts, features: Features, installed: Installation, worker: WorkerArgs | None
) -> list[ApiListener]:
    """Open the API's listener, and the metrics' listener if they have a port of their own."""
    settings, clock, instruments = parts.settings, parts.clock, parts.instruments
    bundles = Bundles(*features)
    authenticate = authenticator(settings, parts.tenants, clock, instruments, installed)
    shell = RequestShell(instruments, clock, parts.entropy(4).hex())
    standing = partial(standing_headers, features.audit)

    def pipeline(routes: tuple[Route, ...]) -> RequestPipeline:
        return RequestPipeline(routes, bundles, authenticate, instruments, shell, standing)

    api, metrics = (worker.api, worker.metrics) if worker else ((), ())
    tls = None if settings.tls is None else RenewingContext.of(settings.tls)
    first = worker is None or worker.index == 0  # warn once, not once per worker
    if settings.tls is not None:
        certificate, now = settings.tls.certificate, clock.now
        expiry = instruments.jobs.certificate_expiry
        expiry.set_function(lambda: seconds_left(certificate, now()))
    if tls is None and not settings.control_listen.loopback and first:
        _log.warning(
            "SLUICE_CONTROL_LISTEN: `%s` is not loopback and has no TLS, so API keys cross the "
            "network in the clear: set SLUICE_TLS_CERTIFICATE and SLUICE_TLS_KEY",
            settings.control_listen,
        )
    name, routes = "SLUICE_CONTROL_LISTEN", routes_of(settings)
    front: RequestHandler = pipeline(routes)
    if settings.console:
        console = features.console(parts)
        reader = SessionReader(console.signin, superadmin_digest(settings, installed))
        sessions = ConsoleSessions(console, reader, authenticate)
        front = ConsolePipeline(PAGES, console, bundles, sessions, front, shell)
    budget = ConnectionBudget(settings.max_connections)
    ConnectionMetrics(parts.registry, budget)
    opened = [
        await ApiListener.open(settings.control_listen, name, front, inherited(api), tls, budget)
    ]
    if settings.metrics_listen is not None:
        # Plain HTTP is enough: no keys cross this port, and scrapers may have no certificate.
        name = "SLUICE_METRICS_LISTEN"
        own = pipeline((METRICS,))
        opened.append(
            await ApiListener.open(settings.metrics_listen, name, own, inherited(metrics))
        )
    return opened


async def _forever(loop: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> None:
    await loop()
    if not stopping.is_set():
        # Nothing keeps the loop's work up to date any more, so the task group ends the process.
        raise LoopEnded(f"loop `{getattr(loop, '__qualname__', loop)}` ended")


async def _drain(parts: Parts, listeners: list[ApiListener]) -> None:
    """Answer the requests under way, within the deadline, and close the listeners."""
    parts.stopping.set()
    # Answer sidecars' long polls now: they could last 25 s, longer than the drain.
    parts.tenants.wake()
    await asyncio.gather(*(listener.drain(DRAIN_SECONDS) for listener in listeners))


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
