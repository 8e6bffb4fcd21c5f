"""A replica of the policy set as the rest of the sidecar sees it. `full_replica` and
`partial_replica` implement it; no other package asks which one is in use."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from policies.sets.signed_head import Claim
from sidecar.policy_cache.agent_documents import AgentDocuments
from sidecar.policy_cache.document_fetcher import DocumentFetcher
from sidecar.policy_cache.policy_store import PolicyStore
from sidecar.policy_cache.replica_state import OnChange

FeedName: TypeAlias = Literal["redis", "control"]

FEEDS: tuple[FeedName, ...] = ("redis", "control")
"""The sources that a policy set may come from."""


class Follower(Protocol):
    """The loop that keeps a replica current, and its state. `feed` is the source in use."""

    @property
    def feed(self) -> FeedName: ...
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


class Replica(ABC):
    """A policy set as this sidecar holds it, in `store`."""

    def __init__(self, store: PolicyStore, clock: Clock) -> None:
        self.policy_set = PolicySet(store.fetch)
        self.fetch = store.fetch
        self._policy_store = store
        self._clock = clock

    def epoch(self) -> str:
        """The control API's store whose set is in force; empty if there is no set."""
        return self._policy_store.position.epoch

    def tenant_id(self) -> str | None:
        return self._policy_store.tenant_id

    def log_keys(self) -> tuple[bytes, ...]:
        """The keys whose signatures count; empty until the control API has named one."""
        # Evaluated at each call: a key that a rotation replaced counts only for a while.
        pin = self._policy_store.pin
        return () if pin is None else pin.accepted(self._clock.now())

    @abstractmethod
    def follow(self, on_change: OnChange, on_other_store: Callable[[], None]) -> Follower: ...

    @abstractmethod
    def document_fetcher(self) -> DocumentFetcher:
        """Fetches documents that the replica doesn't hold yet. Call `follow` first."""

    @abstractmethod
    def agent_documents(self) -> AgentDocuments:
        """Reads the documents of all agents, held or not. Call `follow` first."""

    @abstractmethod
    async def published_claim(self, session_id: str) -> Claim | None:
        """Who owns the session, if the control API has already published it."""

    @abstractmethod
    async def close(self) -> None: ...
