"""Holds the objects that the operations on the audit trail work with, built once at startup."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from control_api.log.append import Changes
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.erasure import WalFolding
from control_api.log.scheduled.asked_logs import AskedLogs
from control_api.log.tails import EventTails
from control_api.log.tenant_change import TenantChanges
from control_api.security.egress import WitnessAddress
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.signing import KeyRing

# Each holds a page of the log in memory, and a connection to the database while it reads one.
MAX_EXPORTS = 4
"""The most exports that run at a time in this process. A further one is refused, and the client
asked to retry later."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The objects that operations on the audit trail work with. `entropy(n)` returns n random
    bytes; a checkpoint counts as witnessed once `witness_quorum` of the `witnesses` have cosigned
    it; `stopping` is set once the service drains."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    tenants: TenantChanges
    checkpoints: CheckpointMaker
    ring: KeyRing
    tails: EventTails
    asked_logs: AskedLogs
    folding: WalFolding
    witnesses: Sequence[WitnessAddress]
    witness_quorum: int
    stopping: asyncio.Event
    exporting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_EXPORTS))
