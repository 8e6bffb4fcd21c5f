"""The policy set as decisions use it: its documents, its age, and how to fetch more of it. Knows
nothing of how the set is kept current."""

from collections.abc import Callable
from dataclasses import dataclass

from policies.sets.policy_set import PolicySet
from sidecar.policy_cache.document_fetcher import DocumentFetcher
from sidecar.policy_cache.freshness import Freshness


@dataclass(frozen=True, slots=True)
class PolicyView:
    """`monotonic` is the clock by which `freshness` measures the set's age."""

    policy_set: PolicySet
    freshness: Freshness
    document_fetcher: DocumentFetcher
    monotonic: Callable[[], float]

    def stale(self) -> bool:
        """Whether the set is too old to decide by."""
        return self.freshness.stale(self.monotonic())

    def masks(self) -> bool:
        """Whether to mask personal data."""
        # If in doubt, mask: a stale policy set can no longer say what to mask.
        return self.policy_set.masks() or self.stale()
