"""The adapters and the clock that use cases work with, built once at startup. Knows no use
case."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from control_api.analyses.process import Analyses
from control_api.caches.page_reads import PageReads
from control_api.caches.tenant_cache import TenantCache
from control_api.checkpoints.maker import CheckpointMaker
from control_api.checkpoints.witnesses import Cosigner
from control_api.enrolment.enrolment import Enrolments
from control_api.isolation.isolation import Isolation
from control_api.isolation.least_pages import LeastPages
from control_api.isolation.sidecar_owners import SidecarOwners
from control_api.isolation.spool_starts import SpoolStarts
from control_api.log.append import Log
from control_api.log.changes import Changes
from control_api.log.follow.tails import EventTails
from control_api.log.scheduled.asked_logs import AskedLogs
from control_api.metrics.metrics import Instruments
from control_api.metrics.peer_metrics import PeerMetrics
from control_api.publishing.assembly import Publishing
from control_api.responses.audit import Document
from control_api.security.console_address import ConsoleAddress
from control_api.settings import Settings
from control_api.store.postgresql.notice_listener import NoticeListener
from control_api.store.queries.fleet import FleetReports
from control_api.store.queries.sessions import SessionClaimer
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from policies.ground.masking import MaskingTurns
from policies.ground.signing import KeyRing, Signer
from policies.trail.change import ObjectChange

if TYPE_CHECKING:
    # Extras of the package, which take long to import.
    from control_api.oidc.provider import IdentityProvider
    from control_api.tracing import DecisionTracer

MAX_WAITERS = 10_000
"""The maximum number of sidecars that wait for changes; any other is asked to retry later."""

# Each batch has up to 1 MiB. A sidecar with a further batch is asked to retry later, so that the
# batch waits on the sidecar's disk and not in this process's memory.
MAX_BATCHES = 64
"""The maximum number of batches of records ingested at a time."""


# Each holds a page of the log in memory, and a connection to the database while it reads one.
MAX_EXPORTS = 4
"""The maximum number of exports at a time in this process; any other is asked to retry later."""


@dataclass(frozen=True, slots=True)
class Description:
    """The API's own description, rendered once from the route table."""

    openapi: Document
    page: Document


@dataclass(frozen=True, slots=True)
class RefusedFiles:
    """Why a tenant's policy files were refused when this process last read them, and when
    (microseconds)."""

    at: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppContext:
    """Everything a use case may need.

    `entropy(n)` returns n random bytes; `epoch` identifies the store; `publishing` is None without
    Redis, `notices` on SQLite, `peer_metrics` in a single process, `tracer` without traces,
    `identity_provider` if people sign in by keys only; `describe` renders the API's description at
    its first call; `stopping` is set once the service drains.
    """

    settings: Settings
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    store: Store
    log: Log
    checkpoints: CheckpointMaker
    cosigner: Cosigner
    sessions: SessionClaimer
    fleet: FleetReports
    sidecar_owners: SidecarOwners
    isolation: Isolation
    spool_starts: SpoolStarts
    console: ConsoleAddress
    tenants: TenantCache
    pages: PageReads
    least_pages: LeastPages
    ring: KeyRing
    epoch: str
    instruments: Instruments
    registry: CollectorRegistry
    describe: Callable[[], Awaitable[Description]]
    masking: MaskingTurns
    enrolments: Enrolments
    tails: EventTails
    stopping: asyncio.Event
    publishing: Publishing | None = None
    notices: NoticeListener | None = None
    peer_metrics: PeerMetrics | None = None
    tracer: "DecisionTracer | None" = None
    identity_provider: "IdentityProvider | None" = None
    # What `maintenance.self_verification` found last, for readiness.
    self_verification: dict[str, str | None] = field(
        default_factory=lambda: {"state": "pending", "finished_at": None}
    )
    # Logs to verify now (`control_api.maintenance.self_verification`).
    asked_logs: AskedLogs = field(default_factory=AskedLogs)
    # By tenant. Every process reads the files, so each knows by itself.
    refused_files: dict[str, RefusedFiles] = field(default_factory=dict)
    # Set when openings were erased (`control_api.maintenance.wal_folding`).
    erased: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when an impact run was asked for (`control_api.workers.impact`).
    impact_asked: asyncio.Event = field(default_factory=asyncio.Event)
    # Held while a batch of records is decoded, so that at most one is decoded between two turns of
    # the event loop: evaluations must not wait for several.
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiters: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_WAITERS))
    ingesting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_BATCHES))
    analyses: Analyses = field(default_factory=Analyses)
    exporting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_EXPORTS))

    @property
    def signer(self) -> Signer:
        """Signs with the log's key."""
        return self.ring.signer

    def new_id(self) -> str:
        """A new UUIDv7, for an event or another log entry."""
        return self.changes.new_id()

    async def log_change(
        self,
        tx: Transaction,
        what: str,
        target: str,
        by: str,
        detail: dict[str, Any],
        change: ObjectChange,
    ) -> None:
        """Log who changed what, as `Changes.record` does."""
        await self.changes.record(tx, what, target, by, detail, change)
