"""The service's life: resources > task group > listening; then draining, backwards.

A loop that dies ends the process: what it kept true is true no more. SIGTERM and SIGINT drain: no
new connection, those who wait are answered, requests under way get a deadline, what was handed to
the log is committed. Knows no route and reads no environment.
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
from control_api.assembly import assemble, routes_of
from control_api.auth.authenticate import Authenticator
from control_api.auth.rate_limit import NextAuthenticator, RateLimit
from control_api.http.request_pipeline import RequestPipeline
from control_api.http.route import Route
from control_api.http.routes import METRICS
from control_api.http.server import ApiListener
from control_api.log import log_key
from control_api.log.append import Log
from control_api.maintenance.bootstrap import FirstKeys, first_start
from control_api.maintenance.key_expiry import KeyExpiry
from control_api.maintenance.policy_files import PolicyFiles
from control_api.maintenance.retention import RetentionLoop
from control_api.security.secret_file import make_directory
from control_api.security.tls_files import RenewingContext
from control_api.settings import Settings
from control_api.store.queries import tenants as tenant_rows
from control_api.store.queries.tenants import Installation
from control_api.store.startup import explain_startup_faults, open_with_retry
from control_api.store.store import Store
from control_api.tenants.tenant_settings import publish_settings
from control_api.workers.worker_args import WorkerArgs, inherited
from policies.ground.clock import Clock
from policies.ground.keys import key_digest
from policies.ground.listen_address import ListenAddress

YOUNG = 20_000
"""Objects that are made before the collector looks at them: a batch of records decodes into some
ten thousand, none of which is garbage, and which go by themselves when it is taken in."""
DRAIN_SECONDS = 10.0
_log = logging.getLogger("sluice.serve")


class LoopEnded(Exception):
    """a loop that should run as long as the service has ended"""


@dataclass(frozen=True, slots=True)
class Started:
    """What a start tells the operator, once."""

    listen: ListenAddress
    metrics_listen: ListenAddress | None
    first_keys: FirstKeys | None


async def serve(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    tell: Callable[[Started], None],
    stop: asyncio.Event | None = None,
    place: WorkerArgs | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until `stop` is set; as one of several, at `place`.
    Raises what stands in the way of a start, and an `ExceptionGroup` where a loop died."""
    stop = stop or _on_signals()
    make_directory(settings.data_dir)
    store: Store | None = None
    try:
        async with asyncio.TaskGroup() as group:
            store = await open_with_retry(
                partial(Store.open, settings.database_url, clock, group, settings.database),
                settings.database_setting,
                settings.start_seconds,
                clock.monotonic,
                stop,
            )
            if store is not None:
                await _live(settings, clock, entropy, store, tell, stop, place)
    finally:
        # After the group: no write is under way any more.
        if store is not None:
            await store.close()


async def _live(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    store: Store,
    tell: Callable[[Started], None],
    stop: asyncio.Event,
    place: WorkerArgs | None,
) -> None:
    async with explain_startup_faults(settings.database_url, settings.database_setting):
        ring = log_key.open_or_make(settings.data_dir)
        installed, first_keys = await first_start(store, settings, entropy)
        await log_key.ensure_database_key(store, ring, settings.data_dir)
        log = await Log.open(store)
        service = assemble(settings, clock, entropy, store, log, installed, ring, place)
        await _publish_all_settings(service)
    files = PolicyFiles(service, settings.policy_dir) if settings.policy_dir else None
    loops = [
        store.group.create_task(_forever(loop, service))
        for loop in (
            service.tenants.follow,
            *((files.watch,) if files else ()),
            AlertEvaluator(service).run,
            DeliveryLoop(service).run,
            RetentionLoop(service).run,
            KeyExpiry(service).run,
            *(service.publishing.loops if service.publishing else ()),
        )
    ]
    if files is not None:
        # One turn, and the files are watched: what changes from here on is reported.
        await asyncio.sleep(0)
        async with explain_startup_faults(settings.database_url, settings.database_setting):
            await files.load()
    listeners = await _listen(service, installed, place)
    if service.peer_metrics is not None:
        await service.peer_metrics.open()
    # What was loaded to get here stays for good: no collection need ever walk over it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)
    try:
        # The ports are bound: whoever reads this can connect.
        addresses = [listener.address for listener in listeners]
        tell(Started(addresses[0], addresses[1] if addresses[1:] else None, first_keys))
        await stop.wait()
    finally:
        await _drain(service, listeners)
        if service.peer_metrics is not None:
            service.peer_metrics.close()
        for task in loops:
            task.cancel()
        if service.publishing is not None:
            await service.publishing.close()


async def _publish_all_settings(service: AppContext) -> None:
    """The environment may say something else than at the start before."""
    async with service.store.reading_all_tenants() as connection:
        everyone = await tenant_rows.ids(connection)
    for tenant_id in everyone:
        await publish_settings(service.store, service.settings, tenant_id)


async def _listen(
    service: AppContext, installed: Installation, place: WorkerArgs | None
) -> list[ApiListener]:
    """The API, and the metrics where they have a port of their own."""
    settings = service.settings
    key = settings.superadmin_key
    superadmin = installed.superadmin_digest if key is None else key_digest(key)
    if superadmin is None:
        _log.warning("there is no superadmin key: SLUICE_SUPERADMIN_KEY is not set any more")
    authenticate: NextAuthenticator = Authenticator(
        service.tenants, superadmin, service.clock, service.instruments
    )
    if rate := settings.rate_limit:
        authenticate = RateLimit(authenticate, rate, service.clock, service.instruments)

    def door(routes: tuple[Route, ...]) -> RequestPipeline:
        run_id = service.entropy(4).hex()
        return RequestPipeline(
            routes, service, authenticate, service.instruments, service.clock, run_id
        )

    api, metrics = (place.api, place.metrics) if place else ((), ())
    tls = None if settings.tls is None else RenewingContext.of(settings.tls)
    if tls is None and not settings.control_listen.loopback and (place is None or not place.index):
        _log.warning(
            "SLUICE_CONTROL_LISTEN: `%s` is not loopback and has no TLS, so API keys cross the "
            "network in the clear: set SLUICE_TLS_CERTIFICATE and SLUICE_TLS_KEY",
            settings.control_listen,
        )
    name, routes = "SLUICE_CONTROL_LISTEN", routes_of(settings)
    opened = [
        await ApiListener.open(settings.control_listen, name, door(routes), inherited(api), tls)
    ]
    if settings.metrics_listen is not None:
        # Plain: figures and no keys, for scrapers that have no certificate to show.
        name = "SLUICE_METRICS_LISTEN"
        own = door((METRICS,))
        opened.append(
            await ApiListener.open(settings.metrics_listen, name, own, inherited(metrics))
        )
    return opened


async def _forever(loop: Callable[[], Awaitable[None]], service: AppContext) -> None:
    await loop()
    if not service.stopping.is_set():
        raise LoopEnded(f"loop `{getattr(loop, '__qualname__', loop)}` ended")


async def _drain(service: AppContext, listeners: list[ApiListener]) -> None:
    """Answer what is under way, within the deadline."""
    service.stopping.set()
    service.tenants.wake()
    await asyncio.gather(*(listener.drain(DRAIN_SECONDS) for listener in listeners))


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
