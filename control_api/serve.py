"""The service's lifetime: open resources > start loops > listen; then drain, in reverse.

If a loop dies, the process ends. SIGTERM and SIGINT make it drain: it takes no new connections,
answers the requests that wait for a change, gives the others a deadline, and commits the records
handed to the log. Knows no route and reads no environment.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from control_api.alerts.deliver import DeliveryLoop
from control_api.alerts.evaluator import AlertEvaluator
from control_api.app_context import AppContext
from control_api.assembly import (
    Assembled,
    Opened,
    assemble,
    authenticator,
    superadmin_digest,
)
from control_api.auth.console_session import SessionReader
from control_api.checkpoints.loop import CheckpointLoop
from control_api.console.pages import PAGES
from control_api.console.pipeline import ConsolePipeline
from control_api.console.sessions import ConsoleSessions
from control_api.domain.log_standing import standing_headers
from control_api.domain.tenants import publish_settings
from control_api.http.request_pipeline import RequestPipeline
from control_api.http.request_shell import RequestShell
from control_api.http.route import Route
from control_api.http.server import ApiListener, RequestHandler
from control_api.log import log_key
from control_api.log.append import Log
from control_api.maintenance.bootstrap import FirstKeys, first_start
from control_api.maintenance.key_expiry import KeyExpiry
from control_api.maintenance.policy_files import PolicyFiles
from control_api.maintenance.retention import RetentionLoop
from control_api.maintenance.self_verification import SelfVerification
from control_api.maintenance.wal_folding import WalFolding
from control_api.metrics.connection_metrics import ConnectionMetrics
from control_api.routes import METRICS, routes_of
from control_api.security.certificate_expiry import seconds_left
from control_api.security.secret_file import make_directory
from control_api.security.tls_files import RenewingContext
from control_api.settings import Settings
from control_api.store.queries import tenants as tenant_rows
from control_api.store.queries.tenants import Installation
from control_api.store.startup import explain_startup_faults, opened_store
from control_api.store.store import Store
from control_api.workers.export_push.loop import ExportPush
from control_api.workers.impact.loop import ImpactLoop
from control_api.workers.worker_args import WorkerArgs, inherited
from policies.ground.clock import Clock
from policies.ground.connection_budget import ConnectionBudget
from policies.ground.listen_address import ListenAddress

# Objects that may accumulate before the garbage collector runs. A batch of records decodes into
# some ten thousand, which reference counting frees as soon as the batch is ingested.
GC_THRESHOLD = 20_000
DRAIN_SECONDS = 10.0
_log = logging.getLogger("sluice.serve")


class LoopEnded(Exception):
    """a loop ended that should run as long as the service"""


@dataclass(frozen=True, slots=True)
class Started:
    """What to tell the operator once the service has started."""

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
    """Serve until SIGTERM or SIGINT, or until `stop` is set. `worker` says which of several
    processes this is. If the service can't start, raises the reason; if a loop dies, an
    `ExceptionGroup`."""
    stop = stop or _on_signals()
    make_directory(settings.data_dir)
    async with opened_store(settings, clock, stop) as store:
        if store is not None:
            await _run(settings, clock, entropy, store, announce, stop, worker)
    _log.info("stopped")


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
        app = parts.app
        await _publish_all_settings(app)
    exports = ExportPush(app)
    loops = await _start_loops(parts, exports, first=worker is None or worker.index == 0)
    listeners = await _listen(parts, installed, worker)
    if app.peer_metrics is not None:
        await app.peer_metrics.open()
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
        await _drain(app, listeners)
        await exports.ended()
        if app.peer_metrics is not None:
            app.peer_metrics.close()
        for task in loops:
            task.cancel()
        await app.analyses.close()
        if app.publishing is not None:
            await app.publishing.close()
        if app.tracer is not None:
            # It waits for its thread; the collector may be away.
            await asyncio.to_thread(app.tracer.close)


async def _start_loops(
    parts: Assembled, exports: ExportPush, *, first: bool
) -> list[asyncio.Task[None]]:
    """Start the loops, then load the policy files. Some run in the `first` worker only."""
    app = parts.app
    settings, seconds = app.settings, app.settings.checkpoint_seconds
    metrics, maker = app.instruments.checkpoints, app.checkpoints
    metrics.diverged.set_function(lambda: len(maker.diverged))
    metrics.stores_differ.set_function(lambda: maker.is_apart)
    app.instruments.jobs.refused_files.set_function(lambda: len(app.refused_files))
    offer = app.cosigner.offer
    signing = CheckpointLoop(app.store, maker, seconds, app.new_id, metrics.outcome, offer)
    files = PolicyFiles(app, settings.policy_dir) if settings.policy_dir else None
    verification = SelfVerification(app)
    loops = [
        app.store.group.create_task(_forever(loop, app))
        for loop in (
            app.tenants.follow,
            app.tenants.follow_notices,
            *((app.notices.run,) if app.notices else ()),
            *((files.watch,) if files else ()),
            AlertEvaluator(parts.alerts).run,
            DeliveryLoop(parts.alerts).run,
            RetentionLoop(app).run,
            *((signing.run, ImpactLoop(app).run, exports.run) if first else ()),
            *((app.cosigner.run,) if first and settings.witnesses else ()),
            KeyExpiry(app).run,
            WalFolding(app).run,
            verification.run,
            verification.run_asked,
            *app.enrolments.loops,
            *(app.publishing.loops if app.publishing else ()),
        )
    ]
    if files is not None:
        # After one turn of the event loop the watch has begun, so a change during `load` is seen.
        await asyncio.sleep(0)
        async with explain_startup_faults(settings):
            await files.load()
    return loops


async def _publish_all_settings(app: AppContext) -> None:
    """Publish every tenant's settings: the environment may have changed since the last start."""
    async with app.store.reading_all_tenants() as connection:
        everyone = await tenant_rows.ids(connection)
    for tenant_id in everyone:
        await publish_settings(app.store, app.settings, tenant_id)


async def _listen(
    parts: Assembled, installed: Installation, worker: WorkerArgs | None
) -> list[ApiListener]:
    """The API's listener, then the metrics' listener if they have their own port."""
    app, bundles = parts.app, parts.bundles
    settings, authenticate = app.settings, authenticator(app, installed)
    shell = RequestShell(app.instruments, app.clock, app.entropy(4).hex())
    standing = partial(standing_headers, app)

    def pipeline(routes: tuple[Route, ...]) -> RequestPipeline:
        return RequestPipeline(routes, bundles, authenticate, app.instruments, shell, standing)

    api, metrics = (worker.api, worker.metrics) if worker else ((), ())
    tls = None if settings.tls is None else RenewingContext.of(settings.tls)
    first = worker is None or worker.index == 0  # warn once, not once per worker
    if settings.tls is not None:
        certificate, now = settings.tls.certificate, app.clock.now
        expiry = app.instruments.jobs.certificate_expiry
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
        reader = SessionReader(app, superadmin_digest(settings, installed))
        sessions = ConsoleSessions(app, reader, authenticate)
        front = ConsolePipeline(PAGES, app, bundles, sessions, front, shell)
    budget = ConnectionBudget(settings.max_connections)
    ConnectionMetrics(app.registry, budget)
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


async def _forever(loop: Callable[[], Awaitable[None]], app: AppContext) -> None:
    await loop()
    if not app.stopping.is_set():
        # Nothing keeps the loop's work up to date any more, so the task group ends the process.
        raise LoopEnded(f"loop `{getattr(loop, '__qualname__', loop)}` ended")


async def _drain(app: AppContext, listeners: list[ApiListener]) -> None:
    """Answer the requests under way, within the deadline."""
    app.stopping.set()
    # Answer sidecars' long polls now: they could last 25 s, longer than the drain.
    app.tenants.wake()
    await asyncio.gather(*(listener.drain(DRAIN_SECONDS) for listener in listeners))


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
