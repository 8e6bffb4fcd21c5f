"""Holds the objects that the operations of sidecars work with, built once at startup."""

import asyncio
from dataclasses import dataclass, field

from prometheus_client import Counter, Gauge

from control_api.fleet.isolation import Isolation, SpoolStarts
from control_api.fleet.set_pages import AgentPages, PageReads
from control_api.log.append import Changes
from control_api.log.head_cache import LogHeadCache
from control_api.registry.enrolment.enrolment import Enrolments
from control_api.sessions.operations import Sessions
from control_api.store.queries.sidecar_rows import FleetReports
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.signing import KeyRing

MAX_WAITERS = 10_000
"""The most sidecars that wait for changes at a time. Any other is asked to retry later."""

# Each batch has up to 1 MiB. A sidecar with a further batch is asked to retry later, so that the
# batch waits on the sidecar's disk and not in this process's memory.
MAX_BATCHES = 64
"""The most batches of records that are ingested at a time."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The objects that the operations of sidecars work with. `epoch` identifies the store; a record
    that was under way for more than `ingest_max_age` seconds is listed and counted at its arrival;
    `waiting` shows how many requests wait, `ingested` counts records; `stopping` is set once the
    service drains."""

    store: Store
    clock: Clock
    changes: Changes
    epoch: str
    ring: KeyRing
    heads: LogHeadCache
    enrolments: Enrolments
    reports: FleetReports
    isolation: Isolation
    pages: PageReads
    agent_pages: AgentPages
    spool_starts: SpoolStarts
    sessions: Sessions
    ingest_max_age: int
    waiting: Gauge
    ingested: Counter
    stopping: asyncio.Event
    # Held while a batch of records is decoded, so that at most one is decoded between two turns of
    # the event loop: evaluations must not wait for several.
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiters: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_WAITERS))
    ingesting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_BATCHES))
