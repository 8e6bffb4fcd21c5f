"""A full replica as the rest of the sidecar sees it: every document, by long poll."""

from collections.abc import Callable

from policies.ground.clock import Clock
from policies.sets.signed_head import Claim
from sidecar.control.client import ControlClient
from sidecar.policy_cache.agent_documents import AgentDocuments, OwnAgentOnly
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.document_fetcher import AllDocuments, DocumentFetcher
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full_replica.agent_listing import StoredAgents
from sidecar.policy_cache.full_replica.poll_loop import PollLoop
from sidecar.policy_cache.full_replica.store import FullStore
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.replica import Follower, Replica
from sidecar.policy_cache.replica_state import OnChange, ReplicaState
from sidecar.settings.model import SidecarSettings


class FullReplica(Replica):
    """A `Replica` of the whole policy set."""

    def __init__(
        self,
        settings: SidecarSettings,
        control: ControlClient,
        file: CacheFile,
        freshness: Freshness,
        clock: Clock,
    ) -> None:
        self._store = FullStore(file)
        super().__init__(self._store, clock)
        self._feed = LongPoll(control, max_delay=settings.staleness_seconds / 4)
        self._freshness = freshness
        self._least = settings.given_least_documents

    def follow(self, on_change: OnChange, on_other_store: Callable[[], None]) -> Follower:
        state = ReplicaState(
            self.policy_set, self._freshness, self._clock, on_change, on_other_store
        )
        return PollLoop(state, self._store, self._feed)

    def document_fetcher(self) -> DocumentFetcher:
        return AllDocuments()

    def agent_documents(self) -> AgentDocuments:
        return OwnAgentOnly() if self._least else StoredAgents(self._store)

    async def published_claim(self, session_id: str) -> Claim | None:  # noqa: ARG002
        """None: without Redis, claims are not published, so the control API has to be asked."""
        return None

    async def close(self) -> None:
        """Nothing to close."""
