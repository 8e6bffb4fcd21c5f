"""What a copy of the policy set is to the rest of a sidecar, and the one that is the whole of it,
by long poll. The other, a working set by way of Redis, is `working_copy`; nobody asks which it is.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from policies.sets.signed_head import Claim
from sidecar.control.client import ControlClient
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.document_fetcher import AllDocuments, DocumentFetcher
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full_store import FullStore
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.poll_loop import PollLoop
from sidecar.settings.model import SidecarSettings

Changed = Callable[[Iterable[str] | None], None]


FEEDS = ("redis", "control")
"""Where a policy set may come from."""


class Following(Protocol):
    """The loop that keeps a copy current, and how it fares. `feed` is the way in use, one of
    `FEEDS`."""

    @property
    def feed(self) -> str: ...
    @property
    def refused(self) -> str | None: ...
    @property
    def polls(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def trouble(self) -> str | None: ...
    @property
    def forged(self) -> int: ...
    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Replica(Protocol):
    """A policy set as it is kept here."""

    policy_set: PolicySet

    def fetch(self, name: str) -> bytes | None: ...
    async def told(self, session_id: str) -> Claim | None:
        """Whose the session is, where the centre has said so already."""
        ...

    def follow(self, on_change: Changed, on_other_store: Callable[[], None]) -> Following: ...
    def supply(self) -> DocumentFetcher: ...
    def epoch(self) -> str:
        """The store's whose set is in force, empty where none is."""
        ...

    def tenant_id(self) -> str | None: ...
    def log_keys(self) -> tuple[bytes, ...]:
        """Whose signatures count; none while nobody has said."""
        ...

    async def close(self) -> None: ...


class FullReplica:
    """Everything, by long poll."""

    def __init__(
        self,
        settings: SidecarSettings,
        centre: ControlClient,
        file: CacheFile,
        freshness: Freshness,
        clock: Clock,
    ) -> None:
        self._documents = FullStore(file)
        self._feed = LongPoll(centre, patience=settings.staleness_seconds / 4)
        self._freshness, self._clock = freshness, clock
        self.policy_set = PolicySet(self._documents.fetch)

    def fetch(self, name: str) -> bytes | None:
        return self._documents.fetch(name)

    async def told(self, session_id: str) -> Claim | None:  # noqa: ARG002  it has to be asked
        return None

    def follow(self, on_change: Changed, on_other_store: Callable[[], None]) -> Following:
        return PollLoop(
            self._feed,
            self._documents,
            self.policy_set,
            self._freshness,
            self._clock,
            on_change,
            on_other_store,
        )

    def supply(self) -> DocumentFetcher:
        return AllDocuments()

    def epoch(self) -> str:
        return self._documents.position.epoch

    def tenant_id(self) -> str | None:
        return self._documents.tenant_id

    def log_keys(self) -> tuple[bytes, ...]:
        pin = self._documents.pin
        return () if pin is None else pin.believed(self._clock.now())

    async def close(self) -> None:
        """There is nothing of its own to close."""
