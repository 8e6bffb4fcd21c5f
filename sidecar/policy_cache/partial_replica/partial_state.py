"""What the loops of a partial replica share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.policy_cache.feed import FeedFailed
from sidecar.policy_cache.partial_replica.working_set import WorkingSet
from sidecar.policy_cache.replica_state import ReplicaState


@dataclass(frozen=True, slots=True)
class PartialState(ReplicaState):
    """`required` are the documents that every decision of this sidecar needs. `blocked`
    returns why, according to the documents held, this sidecar may not decide; None if it may."""

    working_set: WorkingSet
    required: Sequence[str]
    blocked: Callable[[], str | None]

    def require_unblocked(self) -> None:
        """Raise `FeedFailed` if this sidecar may not decide, and have the set count as stale."""
        # Redis does not check our API key. So the sidecar itself looks in the documents that
        # arrive whether its key is still live.
        if (why := self.blocked()) is not None:
            self.freshness.expire(why)
            raise FeedFailed(why)
