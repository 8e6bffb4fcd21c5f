"""Creates the objects that the service consists of and connects them. Starts nothing."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry

from control_api.auth import Authenticator, NextAuthenticator, RateLimit
from control_api.checkpoint_store.location import open_store
from control_api.fleet.isolation import Isolation, SidecarOwners
from control_api.log.append import Changes, Log
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.checkpoints.witnesses import Cosigner
from control_api.log.erasure import WalFolding
from control_api.log.scheduled.asked_logs import AskedLogs
from control_api.log.scheduled.loop import SelfVerification
from control_api.metrics.metrics import EnrolmentMetrics, Instruments, RedisMetrics
from control_api.metrics.peer_metrics import PeerMetrics
from control_api.policy.analyses.process import Analyses
from control_api.policy.impact_loop import ImpactLoop, ImpactParts
from control_api.policy.publishing.assembly import Publishing
from control_api.policy.publishing.redis_sets import SetSigner
from control_api.registry.enrolment.enrolment import Enrolments
from control_api.registry.enrolment.pods import PodRegistry
from control_api.rollback_recovery import RollbackRecovery
from control_api.settings import Settings
from control_api.store import notices
from control_api.store.postgresql.notice_listener import NoticeListener
from control_api.store.queries import log_keys
from control_api.store.queries.sidecar_rows import FleetReports
from control_api.store.queries.tenant_rows import Installation
from control_api.store.store import Store
from control_api.store.tenant_cache import TenantCache
from control_api.store.url import UnusableDatabase, parse_url
from control_api.worker_args import WorkerArgs
from policies.ground.clock import Clock
from policies.ground.keys import key_digest
from policies.ground.signing import KeyRing

if TYPE_CHECKING:
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


class Parts(NamedTuple):
    """The objects that all features build on, such as the store, the log and the metrics.

    `publishing` is None without Redis, `notices` on SQLite, `peer_metrics` in a single process,
    `tracer` without traces. `stopping` is set once the service drains.
    """

    settings: Settings
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    store: Store
    ring: KeyRing
    checkpoints: CheckpointMaker
    cosigner: Cosigner
    owners: SidecarOwners
    reports: FleetReports
    tenants: TenantCache
    instruments: Instruments
    registry: CollectorRegistry
    analyses: Analyses
    enrolments: Enrolments
    folding: WalFolding
    verification: SelfVerification
    impact: ImpactLoop
    stopping: asyncio.Event
    publishing: Publishing | None
    notices: NoticeListener | None
    peer_metrics: PeerMetrics | None
    tracer: "DecisionTracer | None"
    isolation: Isolation
    asked_logs: AskedLogs
    opened: Opened


def assemble(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    opened: Opened,
    worker: WorkerArgs | None,
) -> Parts:
    """Create the parts of the service. `worker` is this process's place among several worker
    processes, or None if it is the only process."""
    store, ring = opened.store, opened.ring
    registry = CollectorRegistry()
    instruments = Instruments(registry)
    jobs = instruments.jobs
    peer_metrics = None
    if worker is not None:
        count = jobs.unanswered.inc
        peer_metrics = PeerMetrics(settings.data_dir, worker.index, worker.count, registry, count)
    stopping = asyncio.Event()
    changes = Changes(clock, entropy)
    tenants = TenantCache(store)
    notes = open_store(settings.checkpoint_store)
    checkpoints = CheckpointMaker(store, ring, notes)
    cosigner = Cosigner(
        store,
        notes,
        settings.witnesses,
        lambda: log_keys.trusted(store, ring),
        instruments.witnesses,
    )
    owners, reports = SidecarOwners(store), FleetReports(store)
    isolation = Isolation(owners, opened.log, instruments.http, clock, changes.new_id)
    enrolments = _enrolments(settings, changes, opened, instruments.enrolment)
    publishing = _publishing(settings, changes, opened, instruments.redis)
    tracer = _tracer(settings, entropy)
    asked, folding, analyses = AskedLogs(), WalFolding(store, clock), Analyses()
    verification = SelfVerification(store, clock, entropy, ring, asked, jobs)
    impact = ImpactLoop(
        ImpactParts(
            store, clock, entropy, checkpoints, ring, settings.database_url, settings.database
        )
    )
    return Parts(
        settings,
        clock,
        entropy,
        changes,
        store,
        ring,
        checkpoints,
        cosigner,
        owners,
        reports,
        tenants,
        instruments,
        registry,
        analyses,
        enrolments,
        folding,
        verification,
        impact,
        stopping,
        publishing,
        _notices(settings, store, tenants, instruments),
        peer_metrics,
        tracer,
        isolation,
        asked,
        opened,
    )


def _enrolments(
    settings: Settings, changes: Changes, opened: Opened, metrics: EnrolmentMetrics
) -> Enrolments:
    store, new_id = opened.store, changes.new_id
    pods = PodRegistry(store, changes.entropy, new_id)
    return Enrolments(settings.enrol_issuers, store, opened.log, pods, metrics, new_id)


def _notices(
    settings: Settings, store: Store, tenants: TenantCache, instruments: Instruments
) -> NoticeListener | None:
    """Create the listener for changes by other processes, or return None on SQLite. Raise
    `UnusableDatabase` if the database URL for it can't be parsed."""
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
    from control_api.tracing import DecisionTracer

    return DecisionTracer(settings.traces_endpoint, settings.traces_sample_ratio, entropy(8).hex())


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
    """Return the SHA-256 of the superadmin's key, or None if there is no such key."""
    key = settings.superadmin_key
    return installed.superadmin_digest if key is None else key_digest(key)


def authenticator(
    settings: Settings,
    tenants: TenantCache,
    clock: Clock,
    instruments: Instruments,
    installed: Installation,
) -> NextAuthenticator:
    """Create the object that checks a request's API key, and the key's rate if there is a rate
    limit."""
    superadmin = superadmin_digest(settings, installed)
    if superadmin is None:
        _log.warning(
            "there is no superadmin key: the first start used SLUICE_SUPERADMIN_KEY, which is not "
            "set any more"
        )
    authenticate: NextAuthenticator = Authenticator(tenants, superadmin, clock, instruments)
    if rate := settings.rate_limit:
        authenticate = RateLimit(authenticate, rate, clock, instruments)
    return authenticate
