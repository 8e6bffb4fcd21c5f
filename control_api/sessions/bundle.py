"""What the operations on sessions work with, built once at startup."""

from dataclasses import dataclass

from prometheus_client import Counter

from control_api.log.changes import Changes
from control_api.policy.publishing.assembly import Publishing
from control_api.store.queries.session_rows import SessionClaimer
from control_api.store.store import Store
from policies.ground.clock import Clock


@dataclass(frozen=True, slots=True)
class Sessions:
    """`publishing` is None without Redis; `claims` counts by the state of the claimed session."""

    store: Store
    clock: Clock
    changes: Changes
    claimer: SessionClaimer
    publishing: Publishing | None
    claims: Counter
