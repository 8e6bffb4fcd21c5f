"""A replica of the policy set as the rest of the sidecar sees it, whichever kind it is; and the
common part of the loops that keep one current: their state, pauses, and log lines."""

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
"""Gets the names of the changed documents, or None if any of them may have changed."""

FeedName: TypeAlias = Literal["redis", "control"]

FEEDS: tuple[FeedName, ...] = ("redis", "control")
"""The sources that a policy set may come from."""

MAX_WAIT = 10.0
"""The longest long poll, in seconds. The control API allows 25."""
MAX_PAUSE = 2.0
FIRST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of a replica. `on_other_store` is called when the set comes from another store of
    the control API: everything else from the old store is then invalid."""

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
        log.warning("the policy cache is damaged: fetching the policy set again")
        store.start_over()
        # Documents read from the damaged file had passed their digests. But no document may count
        # as absent only because the new file is still empty.
        self.policy_set.reset(0)
        self.on_change(None)


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
    """A policy set as this sidecar holds it, in `store`. `feed` asks the control API."""

    def __init__(self, store: PolicyStore, feed: LookupFeed, clock: Clock) -> None:
        self.policy_set = PolicySet(store.fetch)
        self.fetch = store.fetch
        self._policy_store = store
        self._feed = feed
        self._clock = clock

    def epoch(self) -> str:
        """Return the control API's store whose set is in force; empty if there is no set."""
        return self._policy_store.position.epoch

    def tenant_id(self) -> str | None:
        return self._policy_store.tenant_id

    def log_keys(self) -> tuple[bytes, ...]:
        """Return the keys whose signatures count; empty until the control API has named one."""
        # Evaluated at each call: a key that a rotation replaced counts only for a while.
        pin = self._policy_store.pin
        return () if pin is None else pin.accepted(self._clock.now())

    async def learn_key(self) -> str | None:
        """Ask the control API who signs now. Returns why that is not known; None if `log_keys` is
        up to date."""
        try:
            await self._refresh_key()
        except (FeedFailed, FeedRejected, sqlite3.Error) as error:
            return str(error)
        return None

    async def _refresh_key(self) -> None:
        """Ask the control API who signs now. A key other than the pinned one must be endorsed.
        Raises `FeedFailed`, `FeedRejected` or `sqlite3.Error`."""
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
        """Fetches documents that the replica doesn't hold yet. Call `follow` first."""

    @abstractmethod
    def agent_documents(self) -> AgentDocuments:
        """Reads the documents of all agents, held or not. Call `follow` first."""

    @abstractmethod
    async def published_claim(self, session_id: str) -> Claim | None:
        """Return the owner of the session, if the control API has already published it."""

    @abstractmethod
    async def close(self) -> None: ...


class FeedLoop:
    """`refused` says why the last answer was not trusted; it is None if the answer was trusted, or
    if there was none. `polls` counts requests, `failures` those without a usable answer."""

    def __init__(self, outage: RepeatingOutageLogger, max_pause: float) -> None:
        self.refused: str | None = None
        self.polls = 0
        self.failures = 0
        self._outage = outage
        self._max_pause = min(MAX_PAUSE, max_pause)
        self._backoff = Backoff(FIRST_PAUSE, self._max_pause)

    @property
    def problem(self) -> str | None:
        """The reason why the last attempt failed; None if it did not."""
        return self._outage.problem

    def _pause_after(self, error: Exception) -> float:
        """Note a failed attempt. Returns the seconds to wait before the next."""
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
        """Await one poll. Returns whether it succeeded; after a failure, pauses first."""
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
        """Pause if the poll sent at `sent` was meant to wait for news but returned early without
        any. A control API that is shutting down answers at once; without a pause this would poll it
        in a tight loop."""
        if wait and not page.documents and self._state.clock.monotonic() - sent < wait / 4:
            await asyncio.sleep(self._max_pause)
