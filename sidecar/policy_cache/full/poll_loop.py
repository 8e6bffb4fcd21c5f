"""The loop that keeps a full replica current: poll the feed, verify the answer, put it in force.

Knows which answers may be trusted. Knows neither transport nor tables.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from sidecar.policy_cache.feed import (
    Feed,
    FeedFailed,
    FeedForbidden,
    FeedPage,
    FeedRejected,
    Position,
    reject_older,
)
from sidecar.policy_cache.feed_loop import FeedLoop
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full.full_store import FullStore
from sidecar.policy_cache.key_pin import KeyPin, verify_origin

log = logging.getLogger(__name__)

MAX_WAIT = 10.0


class PollLoop(FeedLoop):
    """Follows a feed into `store` and `policy_set`.

    `on_change` gets the names of the changed documents, or None if any may have changed.
    `on_other_store` is called when the feed turns out to be a new store: then nothing that the old
    one said elsewhere holds any more.
    """

    def __init__(
        self,
        feed: Feed,
        store: FullStore,
        policy_set: PolicySet,
        freshness: Freshness,
        clock: Clock,
        on_change: Callable[[Iterable[str] | None], None],
        on_other_store: Callable[[], None],
    ) -> None:
        super().__init__(log, "the policy set is not updated", freshness.limit / 4)
        self.feed = "control"
        self._feed = feed
        self._store = store
        self._policy_set = policy_set
        self._freshness = freshness
        self._clock = clock
        self._on_change = on_change
        self._on_other_store = on_other_store
        # Two polls and a failed one fit into the limit: one lost answer makes nothing stale.
        self._wait = min(MAX_WAIT, freshness.limit / 4)
        policy_set.reset(store.position.revision)
        if store.as_of is not None:
            freshness.restore(store.as_of)

    def stop(self) -> None:
        """Nothing to prepare: the loop may be cancelled at any time."""

    @property
    def forged(self) -> int:
        """Always 0: nothing comes here except from the control API itself."""
        return 0

    async def run(self) -> None:
        """Never returns. Retries every failure: meanwhile the old set grows stale, and denies."""
        while True:
            try:
                await self.step()
            except (FeedFailed, FeedRejected, sqlite3.Error) as error:
                if isinstance(error, FeedForbidden):
                    # Our key or our tenant was revoked: we may no longer decide by what we hold.
                    self._freshness.expire(str(error))
                await asyncio.sleep(self._pause_after(error))
            else:
                self._failed_in_a_row, self.refused = 0, None
                self._outage.recovered()

    async def step(self) -> None:
        """One poll, and what follows from it."""
        if self._store.damaged:
            self._start_over()
        store = self._store
        sent, as_of = self._clock.monotonic(), self._clock.now()
        asked = store.next_position
        # While a change is arriving, its rest is ready: do not wait. Nor may a sidecar that has
        # just started, or was cut off, wait for news before it has caught up.
        settled = self.polls > 0 and self._freshness.age() <= 2 * self._wait
        wait = self._wait if settled and asked == store.position else 0.0
        self.polls += 1
        page = await self._feed.next(asked, wait)
        pin = self._verify(page, asked)
        if page.documents or page.reset:
            store.store(page)
        if page.more:
            return
        store.set_pin(pin)
        if page.reset or store.next_position != store.position or page.revision != asked.revision:
            self._put_in_force(page, as_of)
        else:
            store.confirm(as_of)
        self._freshness.confirm(sent)
        store.sweep()
        if not page.documents and wait and self._clock.monotonic() - sent < wait / 4:
            # A control API that is shutting down answers at once: do not poll it in a tight loop.
            await asyncio.sleep(self._max_pause)

    def _put_in_force(self, page: FeedPage, as_of: int) -> None:
        former = self._store.position.epoch
        changed = self._store.put_in_force(page, as_of)
        # No `await` between the two: no decision may see new documents under an old revision.
        if changed is None:
            self._policy_set.reset(page.revision)
        else:
            self._policy_set.apply(changed, page.revision)
        self._on_change(changed)
        if former and former != page.epoch:
            log.warning("the control API has a new store: the replica was replaced")
            self._on_other_store()
        log.info("policy set `%s` is in force", page.revision)

    def _verify(self, page: FeedPage, asked: Position) -> KeyPin:
        """The key pin after this answer. Raises `FeedRejected` if it is not from the store that
        this replica follows: after a restored backup, a mistyped address or an attack. The set we
        hold then grows stale, and an operator decides by emptying the cache directory."""
        store = self._store
        pin = verify_origin(page, store.tenant_id, store.pin, self._clock.now())
        reject_older(page.epoch, page.revision, store.position)
        if page.epoch != asked.epoch and not page.reset:
            raise FeedFailed(
                "the answer is from another store but does not start from the beginning"
            )
        return pin

    def _start_over(self) -> None:
        log.warning("the policy cache is damaged: fetching the policy set again")
        self._store.start_over()
        # Documents read from the damaged file had passed their digests. But no document may count
        # as absent only because the new file is still empty.
        self._policy_set.reset(0)
        self._on_change(None)
