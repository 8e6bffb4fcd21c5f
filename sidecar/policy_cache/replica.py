"""Defines the interface of a replica of the policy set, which is the same for both kinds, and the
common part of the loops that keep a replica current: their state, pauses, and log lines."""

import asyncio
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from policies.ground.clock import Clock
from policies.ground.process.outage_logger import RepeatingOutageLogger
from policies.sets.policy_set import PolicySet
from policies.sets.signed_head import Claim
from sidecar.platform.backoff import Backoff
from sidecar.policy_cache.feed import (
    FeedFailed,
    FeedForbidden,
    FeedPage,
    FeedRejected,
    LookupFeed,
    Position,
)
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.key_pin import verify_origin
from sidecar.policy_cache.policy_store import PolicyStore
from sidecar.policy_cache.policy_view import AgentDocuments, DocumentFetcher

log = logging.getLogger(__name__)

OnChange = Callable[[Iterable[str] | None], None]
"""A callback that gets the names of the changed documents, or None if any of them may have
changed."""

FeedName: TypeAlias = Literal["redis", "control"]

FEEDS: tuple[FeedName, ...] = ("redis", "control")
"""The names of the sources that a policy set may come from."""

MAX_WAIT = 10.0
"""The most seconds for which a long poll waits for a change. The control API allows 25."""
MAX_PAUSE = 2.0
FIRST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The parts that a replica updates when its set changes. `on_other_store` is called when the
    set comes from another store of the control API: everything else from the old store is then
    invalid."""

    policy_set: PolicySet
    freshness: Freshness
    clock: Clock
    on_change: OnChange
    on_other_store: Callable[[], None]

    def restore(self, store: PolicyStore) -> None:
        """Continue with the policy set that a previous process left on disk."""
        self.policy_set.reset(store.position.revision)
        if store.as_of is not None:
            self.freshness.restore(store.as_of)

    def apply(self, changed: Iterable[str] | None, revision: int) -> None:
        """Make decisions use `revision` from now on. `changed` names the documents that differ,
        None if any may. Call this in the same step of the event loop as the write to the store: no
        decision may see new documents under an old revision."""
        if changed is None:
            self.policy_set.reset(revision)
        else:
            self.policy_set.apply(changed, revision)

    def announce(self, changed: Iterable[str] | None, former: Position, now: Position) -> None:
        """Tell the rest of the sidecar that the set in force has moved from `former` to `now`."""
        self.on_change(changed)
        # The very first set replaces none.
        if former.epoch and former.epoch != now.epoch:
            log.warning("the control API has a new store: the replica was replaced")
            self.on_other_store()
        log.info("policy set `%s` is in force", now.revision)

    def start_over(self, store: PolicyStore) -> None:
        log.warning("the policy cache is damaged: fetching the policy set again")
        store.start_over()
        # Documents read from the damaged file had passed their digests. But no document may count
        # as absent only because the new file is still empty.
        self.policy_set.reset(0)
        self.on_change(None)


class Follower(Protocol):
    """The interface of a loop that keeps a replica current, and of its state. `feed` is the source
    in use."""

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
    """A replica of the tenant's policy set, kept in `store`. `feed` is the control API's feed."""

    def __init__(self, store: PolicyStore, feed: LookupFeed, clock: Clock) -> None:
        self.policy_set = PolicySet(store.fetch)
        self.fetch = store.fetch
        self._policy_store = store
        self._feed = feed
        self._clock = clock

    def epoch(self) -> str:
        """Return the id of the control API's store that the set in force comes from; empty if there
        is no set."""
        return self._policy_store.position.epoch

    def tenant_id(self) -> str | None:
        return self._policy_store.tenant_id

    def log_keys(self) -> tuple[bytes, ...]:
        """Return the keys whose signatures count; empty until the control API has named one."""
        # Evaluated at each call: a key that a rotation replaced counts only for a while.
        pin = self._policy_store.pin
        return () if pin is None else pin.accepted(self._clock.now())

    async def learn_key(self) -> str | None:
        """Ask the control API which key signs now. Returns the reason why that could not be
        learned; None if `log_keys` is up to date."""
        try:
            await self._refresh_key()
        except (FeedFailed, FeedRejected, sqlite3.Error) as error:
            return str(error)
        return None

    async def _refresh_key(self) -> None:
        """Ask the control API which key signs now. A key other than the pinned one must be endorsed
        by it. Raises `FeedFailed`, `FeedRejected` or `sqlite3.Error`."""
        # Every page names the key. A wait of 0 asks for an answer at once.
        self._verify_origin(await self._feed.next(self._policy_store.position, 0.0))

    def _verify_origin(self, page: FeedPage) -> None:
        held = self._policy_store
        pin = verify_origin(page, held.tenant_id, held.pin, self._clock.now())
        held.set_origin(page.tenant_id, pin)

    @abstractmethod
    def follow(self, on_change: OnChange, on_other_store: Callable[[], None]) -> Follower: ...

    @abstractmethod
    def document_fetcher(self) -> DocumentFetcher:
        """Return the fetcher of documents that the replica doesn't hold yet. Call `follow`
        first."""

    @abstractmethod
    def agent_documents(self) -> AgentDocuments:
        """Return the reader of all agents' documents, whether the replica holds them or not. Call
        `follow` first."""

    @abstractmethod
    async def published_claim(self, session_id: str) -> Claim | None:
        """Return the claim to the session if the control API has already published it; otherwise
        None."""

    @abstractmethod
    async def close(self) -> None: ...


class FeedLoop:
    """The common part of the loops that read a feed: counters, pauses and log lines. `refused` is
    the reason why the last answer was not trusted; None if it was trusted, or if there was no
    answer. `polls` counts requests, `failures` those without a usable answer."""

    def __init__(self, outage: RepeatingOutageLogger, max_pause: float) -> None:
        self.refused: str | None = None
        self.polls = 0
        self.failures = 0
        self._outage = outage
        self._max_pause = min(MAX_PAUSE, max_pause)
        self._backoff = Backoff(FIRST_PAUSE, self._max_pause)

    @property
    def problem(self) -> str | None:
        """The reason why the last attempt failed; None if it succeeded."""
        return self._outage.problem

    def _pause_after(self, error: Exception) -> float:
        """Count and log a failed attempt. Returns the seconds to wait before the next attempt."""
        ours = isinstance(error, sqlite3.Error)
        self._outage.failing(f"the policy cache can't be written: {error}" if ours else str(error))
        if isinstance(error, FeedRejected):
            self.refused = str(error)
        self.failures += 1
        return self._backoff.next_pause()


class LongPollLoop(FeedLoop):
    def __init__(self, log: logging.Logger, what: str, back: str, state: ReplicaState) -> None:
        limit = state.freshness.limit
        # Who reads the line should know how long that may last.
        what = f"{what}; everything is denied once the set is older than {limit:g} s"
        outage = RepeatingOutageLogger(log, what, back, state.clock.monotonic)
        super().__init__(outage, limit / 4)
        self._state = state
        # Two polls and a failed one fit into the limit: one lost answer makes nothing stale.
        self._wait = min(MAX_WAIT, limit / 4)

    async def _attempt(self, step: Awaitable[None]) -> bool:
        """Await one poll, and return True if it succeeded. After a failure, pause and return
        False."""
        try:
            await step
        except (FeedFailed, FeedRejected, sqlite3.Error) as error:
            # None of these is fatal: the set in force stays in use until it is too old.
            if isinstance(error, FeedForbidden):
                # The control API refuses our key, which may have been revoked: deny from now on.
                self._state.freshness.expire(str(error))
            await asyncio.sleep(self._pause_after(error))
            return False
        self.refused = None
        self._backoff.reset()
        self._outage.recovered()
        return True

    async def _throttle(self, page: FeedPage, wait: float, sent: float) -> None:
        """Pause if the poll sent at `sent` was meant to wait for a change but returned early
        without any. A control API that is shutting down answers at once; without a pause this loop
        would poll it without rest."""
        if wait and not page.documents and self._state.clock.monotonic() - sent < wait / 4:
            await asyncio.sleep(self._max_pause)
