"""Keeps a full replica current, every document of the tenant's policy set: polls the control API,
verifies the answer, puts it in force; and lists all agents for a search. A sidecar without `redis`
uses one. A document that it lacks does not exist.

Knows which answers may be trusted. Knows neither transport nor tables (`long_poll`, `full_store`).
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from policies.ground.clock import Clock
from policies.sets.signed_head import Claim
from sidecar.control.client import ControlClient
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.feed import Feed, FeedFailed, FeedPage, Position, reject_older
from sidecar.policy_cache.feed_loop import LongPollLoop
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full_store import FullStore
from sidecar.policy_cache.key_pin import KeyPin, verify_origin
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.policy_view import (
    AGENT_PREFIX,
    AgentDocuments,
    AllDocuments,
    DocumentFetcher,
    ListingInterrupted,
    OwnAgentOnly,
)
from sidecar.policy_cache.replica import FeedName, Follower, OnChange, Replica, ReplicaState
from sidecar.settings.model import SidecarSettings

CHUNK = 50
"""Documents read at a time: reading runs on the event loop, so decisions wait for it."""
_END = AGENT_PREFIX[:-1] + chr(ord(AGENT_PREFIX[-1]) + 1)


class StoredAgents:
    """The `AgentDocuments` of a store."""

    def __init__(self, store: FullStore) -> None:
        self._store = store

    async def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """See `AgentDocuments.read`."""
        position, after = self._store.position, AGENT_PREFIX
        while True:
            chunk = self._store.list_documents(after, _END, CHUNK)
            yield [body for _, body in chunk]
            if self._store.position != position:
                raise ListingInterrupted(ListingInterrupted.__doc__)
            if len(chunk) < CHUNK:
                return
            after = chunk[-1][0]


log = logging.getLogger(__name__)


class PollLoop(LongPollLoop):
    """Brings what `feed` sends into `store`, and puts it in force."""

    def __init__(self, state: ReplicaState, store: FullStore, feed: Feed) -> None:
        super().__init__(
            log, "the policy set is not updated", "the policy set is updated again", state
        )
        self.feed: FeedName = "control"
        self._feed = feed
        self._store = store
        state.restore(store)

    def stop(self) -> None:
        """Nothing to prepare: the loop may be cancelled at any time."""

    @property
    def forged(self) -> int:
        """Always 0: everything here comes from the control API itself."""
        return 0

    async def run(self) -> None:
        """Never returns. Retries every failure."""
        while True:
            await self._attempt(self.step())

    async def step(self) -> None:
        """Poll once, and act on the answer."""
        store, state = self._store, self._state
        if store.damaged:
            state.start_over(store)
        sent, as_of = state.clock.monotonic(), state.clock.now()
        asked = store.next_position
        # While a change is arriving, its rest is ready: do not wait. Nor may a sidecar that has
        # just started, or was cut off, wait for news before it has caught up.
        settled = self.polls > 0 and state.freshness.age() <= 2 * self._wait
        wait = self._wait if settled and asked == store.position else 0.0
        self.polls += 1
        page = await self._feed.next(asked, wait)
        pin = self._verify(page, asked)
        if page.documents or page.reset:
            store.store(page)
        if page.more:
            # Confirm nothing yet: a set is judged by only once it is complete.
            return
        # Store the pin first: no set may be in force on disk without the pin that vouches for it.
        store.set_origin(page.tenant_id, pin)
        if page.reset or store.next_position != store.position or page.revision != asked.revision:
            self._put_in_force(page, as_of)
        else:
            store.confirm(as_of)
        # Count the age from the question: a change may follow the answer while it travels.
        state.freshness.confirm(sent)
        store.sweep()
        await self._throttle(page, wait, sent)

    def _put_in_force(self, page: FeedPage, as_of: int) -> None:
        former = self._store.position
        changed = self._store.put_in_force(page, as_of)
        self._state.apply(changed, page.revision)
        self._state.announce(changed, former, self._store.position)
        # Last, because it may fail: decisions already use the new revision.
        self._store.drop_replaced(changed)

    def _verify(self, page: FeedPage, asked: Position) -> KeyPin:
        """Return the key pin after this answer. Raises `FeedRejected` if the answer must not be
        trusted, and `FeedFailed` if it is from another store but does not start over."""
        store = self._store
        # These raise after a restored backup, a mistyped address or an attack. The set we hold then
        # becomes stale; an operator who trusts the new answers empties the cache directory.
        pin = verify_origin(page, store.tenant_id, store.pin, self._state.clock.now())
        reject_older(page.epoch, page.revision, store.position)
        if page.epoch != asked.epoch and not page.reset:
            raise FeedFailed(
                "the answer is from another store but does not start from the beginning"
            )
        return pin


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
        feed = LongPoll(control, max_delay=settings.staleness_seconds / 4)
        super().__init__(self._store, feed, clock)
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
        """Return None: without Redis, claims are not published, so the control API has to be
        asked."""
        return None

    async def close(self) -> None:
        """Nothing to close."""
