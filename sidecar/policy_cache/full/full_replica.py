"""A full replica as the rest of the sidecar sees it: every document, by long poll."""

from collections.abc import Callable

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from policies.sets.signed_head import Claim
from sidecar.control.client import ControlClient
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.document_fetcher import AllDocuments, DocumentFetcher
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full.full_store import FullStore
from sidecar.policy_cache.full.poll_loop import PollLoop
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.replica import Follower, OnChange
from sidecar.settings.model import SidecarSettings


class FullReplica:
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
        self._feed = LongPoll(control, max_delay=settings.staleness_seconds / 4)
        self._freshness, self._clock = freshness, clock
        self.policy_set = PolicySet(self._store.fetch)

    def fetch(self, name: str) -> bytes | None:
        return self._store.fetch(name)

    async def published_claim(self, session_id: str) -> Claim | None:  # noqa: ARG002
        """None: without Redis, claims are not published, so the control API has to be asked."""
        return None

    def follow(self, on_change: OnChange, on_other_store: Callable[[], None]) -> Follower:
        return PollLoop(
            self._feed,
            self._store,
            self.policy_set,
            self._freshness,
            self._clock,
            on_change,
            on_other_store,
        )

    def document_fetcher(self) -> DocumentFetcher:
        return AllDocuments()

    def epoch(self) -> str:
        return self._store.position.epoch

    def tenant_id(self) -> str | None:
        return self._store.tenant_id

    def log_keys(self) -> tuple[bytes, ...]:
        pin = self._store.pin
        return () if pin is None else pin.accepted(self._clock.now())

    async def close(self) -> None:
        """Nothing to close."""
