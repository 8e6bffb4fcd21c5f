"""What the use cases stand on: adapters and clock, made once by `serve`. Knows no operation."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from control_api.caches.tenant_cache import TenantCache
from control_api.log.append import Log
from control_api.metrics.metrics import Instruments
from control_api.metrics.peer_metrics import PeerMetrics
from control_api.publishing.publishing import Publishing
from control_api.responses.audit import Document
from control_api.settings import Settings
from control_api.store.queries.fleet import FleetReports
from control_api.store.queries.sessions import SessionClaimer
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.ground.signing import KeyRing, Signer

MAX_WAITERS = 10_000
"""Sidecars that may wait for news at a time; whoever comes then is told to come again."""

MOST_BATCHES = 64
"""Sidecars' batches, of at most 1 MiB each, that are taken in at a time; the next is told to come
again: it waits on the sidecar's disk, not in our memory."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the service says of itself, made once from the table of routes."""

    openapi: Document
    page: Document


@dataclass(frozen=True, slots=True)
class AppContext:
    """The adapters. `entropy(n)` gives n random bytes; `epoch` identifies the store; `publishing`
    is None where there is no Redis, `siblings` where there is one process; `stopping`
    is set once the service drains; `reading` is held by the batch of a sidecar's records that is
    being read, so that of many no more than one is between two turns of the event loop."""

    settings: Settings
    clock: Clock
    entropy: Callable[[int], bytes]
    store: Store
    log: Log
    sessions: SessionClaimer
    fleet: FleetReports
    tenants: TenantCache
    ring: KeyRing
    epoch: str
    instruments: Instruments
    registry: CollectorRegistry
    description: Description
    publishing: Publishing | None = None
    siblings: PeerMetrics | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiters: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_WAITERS))
    ingesting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_BATCHES))

    @property
    def signer(self) -> Signer:
        """The log's key."""
        return self.ring.signer

    def new_id(self) -> str:
        """A UUIDv7, of an event or of another entry of the log."""
        return uuid7(self.clock.now(), self.entropy(10))
