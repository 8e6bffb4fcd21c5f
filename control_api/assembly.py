"""Builds the parts of the service and connects them. Starts nothing."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry

from control_api.alerts.bundle import Alerts, Mail
from control_api.app_context import AppContext, Description
from control_api.auth.authenticate import Authenticator
from control_api.auth.rate_limit import NextAuthenticator, RateLimit
from control_api.caches.page_reads import PageReads
from control_api.caches.tenant_cache import TenantCache
from control_api.checkpoint_store.location import open_store
from control_api.checkpoints.maker import CheckpointMaker
from control_api.checkpoints.witnesses import Cosigner
from control_api.enrolment.enrolment import Enrolments
from control_api.enrolment.registry import Registry
from control_api.http.bundles import Bundles
from control_api.http.describer import Describer
from control_api.http.docs.page import render_page
from control_api.http.openapi import describe
from control_api.http.route import Route
from control_api.isolation.isolation import Isolation
from control_api.isolation.least_pages import LeastPages
from control_api.isolation.sidecar_owners import SidecarOwners
from control_api.isolation.spool_starts import SpoolStarts
from control_api.log.append import Log
from control_api.log.changes import Changes
from control_api.log.follow.tails import EventTails
from control_api.maintenance.rollback_recovery import RollbackRecovery
from control_api.metrics.metrics import EnrolmentMetrics, Instruments, JobMetrics, RedisMetrics
from control_api.metrics.peer_metrics import PeerMetrics
from control_api.publishing.assembly import Publishing
from control_api.publishing.set_signer import SetSigner
from control_api.responses.audit import Document
from control_api.routes import routes_of
from control_api.security.console_address import ConsoleAddress
from control_api.settings import Settings
from control_api.store import notices
from control_api.store.postgresql.notice_listener import NoticeListener
from control_api.store.queries import log_keys
from control_api.store.queries.fleet import FleetReports
from control_api.store.queries.sessions import SessionClaimer
from control_api.store.queries.tenants import Installation
from control_api.store.store import Store
from control_api.store.url import UnusableDatabase, parse_url
from control_api.workers.worker_args import WorkerArgs
from policies import __version__
from policies.ground.clock import Clock
from policies.ground.keys import key_digest
from policies.ground.masking import MaskingTurns
from policies.ground.signing import KeyRing

if TYPE_CHECKING:
    from control_api.oidc.provider import IdentityProvider
    from control_api.tracing import DecisionTracer

_log = logging.getLogger("sluice.serve")


@dataclass(frozen=True, slots=True)
class Opened:
    """The resources that startup opens first: the store, its installation record, its log, and the
    keys that sign the log."""

    store: Store
    installed: Installation
    log: Log
    ring: KeyRing


class Assembled(NamedTuple):
    """The parts of the service: the application context, and what each feature works with."""

    app: AppContext
    alerts: Alerts

    @property
    def bundles(self) -> Bundles:
        """What operations work with."""
        return Bundles(*self)


def assemble(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    opened: Opened,
    worker: WorkerArgs | None,
) -> Assembled:
    """The parts of the service. `worker` says which of several processes this is, or is None if it
    is the only one."""
    registry = CollectorRegistry()
    instruments = Instruments(registry)
    peer_metrics = None
    if worker is not None:
        count = instruments.jobs.unanswered.inc
        peer_metrics = PeerMetrics(settings.data_dir, worker.index, worker.count, registry, count)
    notes = open_store(settings.checkpoint_store)
    tenants = TenantCache(opened.store)
    stopping = asyncio.Event()
    owners = SidecarOwners(opened.store)
    changes = Changes(clock, entropy)
    app = AppContext(
        settings=settings,
        clock=clock,
        entropy=entropy,
        changes=changes,
        store=opened.store,
        log=opened.log,
        checkpoints=CheckpointMaker(opened.store, opened.ring, notes),
        cosigner=Cosigner(
            opened.store,
            notes,
            settings.witnesses,
            lambda: log_keys.trusted(opened.store, opened.ring),
            instruments.witnesses,
        ),
        sessions=SessionClaimer(opened.store),
        fleet=FleetReports(opened.store),
        sidecar_owners=owners,
        isolation=Isolation(owners, opened.log, instruments.http, clock, changes.new_id),
        spool_starts=SpoolStarts(opened.store, clock, settings.new_spools_per_day),
        console=_console(settings, entropy),
        tenants=tenants,
        pages=PageReads(opened.store),
        least_pages=LeastPages(opened.store),
        ring=opened.ring,
        epoch=opened.installed.epoch,
        instruments=instruments,
        registry=registry,
        describe=Describer(partial(_description, routes_of(settings))).describe,
        masking=MaskingTurns(clock.monotonic, partial(asyncio.sleep, 0), asyncio.Event),
        enrolments=_enrolments(settings, changes, opened, instruments.enrolment),
        tails=EventTails(opened.store, stopping),
        stopping=stopping,
        publishing=_publishing(settings, changes, opened, instruments.redis),
        notices=_notices(settings, opened.store, tenants, instruments),
        peer_metrics=peer_metrics,
        tracer=_tracer(settings, entropy),
        identity_provider=_identity_provider(settings, clock),
    )
    return Assembled(app, _alerts(settings, changes, opened.store, instruments.jobs))


def _alerts(settings: Settings, changes: Changes, store: Store, metrics: JobMetrics) -> Alerts:
    server, sender, hosts = settings.smtp_url, settings.smtp_from, settings.webhook_allow
    mail = None if server is None or sender is None else Mail(server, sender)
    return Alerts(store, changes.clock, changes.entropy, changes, mail, hosts, metrics)


def _console(settings: Settings, entropy: Callable[[int], bytes]) -> ConsoleAddress:
    """Raises `UnusableFile`."""
    if settings.console_url is not None:
        return ConsoleAddress.given(settings.console_url)
    if settings.tls is not None or not settings.console:
        return ConsoleAddress.missing()
    return ConsoleAddress.own(settings.data_dir, settings.control_listen, entropy)


def _enrolments(
    settings: Settings, changes: Changes, opened: Opened, metrics: EnrolmentMetrics
) -> Enrolments:
    store, new_id = opened.store, changes.new_id
    registry = Registry(store, changes.entropy, new_id)
    return Enrolments(settings.enrol_issuers, store, opened.log, registry, metrics, new_id)


def _notices(
    settings: Settings, store: Store, tenants: TenantCache, instruments: Instruments
) -> NoticeListener | None:
    """Raises `UnusableDatabase` if there is a URL to listen at that can't be read."""
    if settings.listen_database_url is None:
        return None

    async def probe(channel: str) -> None:
        async with store.reading_all_tenants() as connection:
            await notices.send_to(connection, channel)

    setting = settings.listen_setting
    try:
        url = parse_url(settings.listen_database_url)
    except UnusableDatabase as error:
        raise UnusableDatabase(f"{setting}: {error}") from error
    listening = instruments.jobs.listening.set
    return NoticeListener(url, setting, probe, tenants.noticed, listening)


def _tracer(settings: Settings, entropy: Callable[[int], bytes]) -> "DecisionTracer | None":
    if settings.traces_endpoint is None:
        return None
    from control_api.tracing import DecisionTracer  # imported late: an extra of the package

    return DecisionTracer(settings.traces_endpoint, settings.traces_sample_ratio, entropy(8).hex())


def _identity_provider(settings: Settings, clock: Clock) -> "IdentityProvider | None":
    if settings.oidc is None:
        return None
    from control_api.oidc.provider import IdentityProvider  # imported late: an extra of the package

    return IdentityProvider(settings.oidc, clock)


def _publishing(
    settings: Settings, changes: Changes, opened: Opened, metrics: RedisMetrics
) -> Publishing | None:
    if settings.redis_url is None:
        return None
    store, clock, entropy = opened.store, changes.clock, changes.entropy
    # A store that was restored from a backup may lack revisions that were already signed.
    recovery = RollbackRecovery(store, settings, changes.new_id)
    signer = SetSigner(opened.ring, opened.installed.epoch)
    return Publishing(settings.redis_url, store, signer, clock, entropy, metrics, recovery.recover)


def superadmin_digest(settings: Settings, installed: Installation) -> bytes | None:
    """The SHA-256 of the superadmin's key, or None if there is no such key."""
    key = settings.superadmin_key
    return installed.superadmin_digest if key is None else key_digest(key)


def authenticator(app: AppContext, installed: Installation) -> NextAuthenticator:
    """The check of a request's API key, and of the key's rate if there is a limit."""
    settings = app.settings
    superadmin = superadmin_digest(settings, installed)
    if superadmin is None:
        _log.warning(
            "there is no superadmin key: the first start used SLUICE_SUPERADMIN_KEY, which is not "
            "set any more"
        )
    authenticate: NextAuthenticator = Authenticator(
        app.tenants, superadmin, app.clock, app.instruments
    )
    if rate := settings.rate_limit:
        authenticate = RateLimit(authenticate, rate, app.clock, app.instruments)
    return authenticate


@cache
def _description(routes: tuple[Route, ...]) -> Description:
    # Cached for the process, because it depends only on the routes.
    openapi = describe(routes, __version__)
    return Description(Document("application/json", openapi), render_page(openapi))
