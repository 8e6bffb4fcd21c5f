"""The state of a replica that its loop keeps current, and the callbacks that the loop tells of a
change."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from sidecar.policy_cache.feed import Position
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.policy_store import PolicyStore

log = logging.getLogger(__name__)

OnChange = Callable[[Iterable[str] | None], None]
"""Gets the names of the changed documents, or None if any of them may have changed."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """`on_other_store` is called when the set comes from another store of the control API: nothing
    else that the old store said is valid any more."""

    policy_set: PolicySet
    freshness: Freshness
    clock: Clock
    on_change: OnChange
    on_other_store: Callable[[], None]

    def restore(self, store: PolicyStore) -> None:
        """Continue with what a previous process left on disk."""
        self.policy_set.reset(store.position.revision)
        if store.as_of is not None:
            self.freshness.restore(store.as_of)

    def apply(self, changed: Iterable[str] | None, revision: int) -> None:
        """Make decisions use `revision`. Call this in the same step of the event loop as the write
        to the store: no decision may see new documents under an old revision."""
        if changed is None:
            self.policy_set.reset(revision)
        else:
            self.policy_set.apply(changed, revision)

    def announce(self, changed: Iterable[str] | None, former: Position, now: Position) -> None:
        """Tell the rest of the sidecar that the set went from `former` to `now`."""
        self.on_change(changed)
        # The very first set replaces none.
        if former.epoch and former.epoch != now.epoch:
            log.warning("the control API has a new store: the replica was replaced")
            self.on_other_store()
        log.info("policy set `%s` is in force", now.revision)

    def start_over(self, store: PolicyStore) -> None:
        """Continue with an empty store in place of a damaged one."""
        log.warning("the policy cache is damaged: fetching the policy set again")
        store.start_over()
        # Documents read from the damaged file had passed their digests. But no document may count
        # as absent only because the new file is still empty.
        self.policy_set.reset(0)
        self.on_change(None)
