"""What decisions work with, built once at startup."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import Counter

from control_api.fleet.isolation import Isolation
from control_api.log.append import Log
from control_api.log.changes import Changes
from control_api.sessions.bundle import Sessions
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.masking import MaskingTurns

if TYPE_CHECKING:
    # An extra of the package, which takes long to import.
    from control_api.tracing import DecisionTracer


@dataclass(frozen=True, slots=True)
class Decisions:
    """`entropy(n)` returns n random bytes; `decided` gives the counter of a decision and the check
    that made it; `tracer` is None without traces."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    log: Log
    masking: MaskingTurns
    sessions: Sessions
    isolation: Isolation
    decided: Callable[[str, str], Counter]
    tracer: "DecisionTracer | None"
