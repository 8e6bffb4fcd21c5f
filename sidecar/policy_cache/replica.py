"""A replica of the policy set as the rest of the sidecar sees it. `full/` and `partial/` implement
it; no other package asks which one is in use."""

from collections.abc import Callable, Iterable
from typing import Protocol

from policies.sets.policy_set import PolicySet
from policies.sets.signed_head import Claim
from sidecar.policy_cache.document_fetcher import DocumentFetcher

OnChange = Callable[[Iterable[str] | None], None]

FEEDS = ("redis", "control")
"""Where a policy set may come from."""


class Follower(Protocol):
    """The loop that keeps a replica current, and how it is doing. `feed` is the source in use, one
    of `FEEDS`."""

    @property
    def feed(self) -> str: ...
    @property
    def refused(self) -> str | None: ...
    @property
    def polls(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def problem(self) -> str | None: ...
    @property
    def forged(self) -> int: ...
    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Replica(Protocol):
    """A policy set as this sidecar holds it."""

    policy_set: PolicySet

    def fetch(self, name: str) -> bytes | None: ...
    async def published_claim(self, session_id: str) -> Claim | None:
        """Who owns the session, if the control API has already published it."""
        ...

    def follow(self, on_change: OnChange, on_other_store: Callable[[], None]) -> Follower: ...
    def document_fetcher(self) -> DocumentFetcher:
        """Call `follow` first."""
        ...

    def epoch(self) -> str:
        """The store whose set is in force; empty if none is."""
        ...

    def tenant_id(self) -> str | None: ...
    def log_keys(self) -> tuple[bytes, ...]:
        """The keys whose signatures count; empty until the control API has named one."""
        ...

    async def close(self) -> None: ...
