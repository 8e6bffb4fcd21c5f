"""What the loops of a partial replica share."""

from collections.abc import Callable
from dataclasses import dataclass

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.partial.working_set import WorkingSet


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """`required` are the documents that every decision of this sidecar needs. `blocked` says, by
    what is held, why this sidecar may not decide; None if it may."""

    working_set: WorkingSet
    policy_set: PolicySet
    freshness: Freshness
    clock: Clock
    required: tuple[str, ...]
    blocked: Callable[[], str | None]
