"""The loop that keeps the policy set current: ask the feed, judge the answer, put it in force.

Knows what an answer must be like to be believed. Knows neither transport nor tables.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Iterable

from policies.ground.clock import Clock
from policies.sets.policy_set import PolicySet
from sidecar.policy_cache.feed import Feed, FeedFailed, FeedForbidden, FeedPage, Position
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full_store import FullStore
from sidecar.policy_cache.key_pin import KeyPin, NotEndorsed, pinned
from sidecar.spool.state_logger import StateLogger

log = logging.getLogger(__name__)

LONGEST_WAIT = 10.0
LONGEST_PAUSE = 2.0
FIRST_PAUSE = 0.05


class FeedRejected(Exception):
    """the feed's answer must not be believed; whoever runs the sidecar has to look"""


class PollLoop:
    """Follows a feed into `documents` and `policy_set`.

    `refused` says why the last answer was not believed, None where it was or there was none.
    `polls` counts the times it asked, `failures` those without a usable answer. `on_change` gets
    the names of the documents that changed, None where that may be any; `on_other_store` is called
    when the feed turns out to be a new store: what the old one said elsewhere is void.
    """

    def __init__(
        self,
        feed: Feed,
        documents: FullStore,
        policy_set: PolicySet,
        freshness: Freshness,
        clock: Clock,
        on_change: Callable[[Iterable[str] | None], None],
        on_other_store: Callable[[], None],
    ) -> None:
        self.feed = "control"
        self.refused: str | None = None
        self.polls = 0
        self.failures = 0
        self._trouble = StateLogger(log, "the policy set is not updated")
        self._feed = feed
        self._documents = documents
        self._policy_set = policy_set
        self._freshness = freshness
        self._clock = clock
        self._on_change = on_change
        self._on_other_store = on_other_store
        # Two polls and a failed one fit into the limit: one lost answer makes nothing stale.
        self._wait = min(LONGEST_WAIT, freshness.limit / 4)
        self._longest_pause = min(LONGEST_PAUSE, freshness.limit / 4)
        policy_set.reset(documents.position.revision)
        if documents.as_of is not None:
            freshness.restore(documents.as_of)

    @property
    def trouble(self) -> str | None:
        """Why the last poll failed; None where it did not."""
        return self._trouble.now

    def stop(self) -> None:
        """The loop may be cancelled at any time."""

    @property
    def forged(self) -> int:
        """Nothing comes here but by the control API itself."""
        return 0

    async def run(self) -> None:
        """Never returns. Every failure is tried again: an old set denies by itself, in time."""
        failures = 0
        while True:
            try:
                await self.step()
                failures, self.refused = 0, None
                self._trouble.over()
                continue
            except FeedForbidden as error:
                # Our key is dead, or our tenant is: what we hold is no longer ours to decide by.
                self._freshness.expire(str(error))
                self._trouble.is_(str(error))
            except FeedFailed as error:
                self._trouble.is_(str(error))
            except FeedRejected as error:
                self.refused = str(error)
                self._trouble.is_(self.refused)
            except sqlite3.Error as error:
                self._trouble.is_(f"its copy can't be written: {error}")
            self.failures += 1
            await asyncio.sleep(self._pause(failures))
            failures += 1

    async def step(self) -> None:
        """One poll and what follows from it."""
        if self._documents.damaged:
            self._start_over()
        held = self._documents
        sent, as_of = self._clock.monotonic(), self._clock.now()
        asked = held.next_position
        # While a change is arriving its rest is there already: nothing to wait for. Nor may a
        # sidecar that starts, or was cut off, wait for news while it does not know the old.
        settled = self.polls > 0 and self._freshness.age() <= 2 * self._wait
        wait = self._wait if settled and asked == held.position else 0.0
        self.polls += 1
        page = await self._feed.next(asked, wait)
        pin = self._judge(page, asked)
        if page.documents or page.reset:
            held.store(page)
        if page.more:
            return
        held.believe(pin)
        if page.reset or held.next_position != held.position or page.revision != asked.revision:
            self._put_in_force(page, as_of)
        else:
            held.confirm(as_of)
        self._freshness.confirm(sent)
        held.sweep()
        if not page.documents and wait and self._clock.monotonic() - sent < wait / 4:
            # A centre that is stopping answers at once: it must not be asked in a circle.
            await asyncio.sleep(self._longest_pause)

    def _put_in_force(self, page: FeedPage, as_of: int) -> None:
        former = self._documents.position.epoch
        changed = self._documents.put_in_force(page, as_of)
        # No `await` between the two: no decision sees new documents under an old revision.
        if changed is None:
            self._policy_set.reset(page.revision)
        else:
            self._policy_set.apply(changed, page.revision)
        self._on_change(changed)
        if former and former != page.epoch:
            log.warning("the control API has another store than before: the copy was replaced")
            self._on_other_store()
        log.info("policy set `%s` is in force", page.revision)

    def _judge(self, page: FeedPage, asked: Position) -> KeyPin:
        """The log's key by this answer. Raises `FeedRejected` where it is not of the store whose
        copy
        this is, as it may be after a restored backup, a mistyped address, or an attack; in all of
        them the set we have grows stale, and the operator decides by emptying the cache
        directory."""
        held = self._documents
        if held.tenant_id is not None and page.tenant_id != held.tenant_id:
            raise FeedRejected("the key in `key_file` is of another tenant than this cache")
        try:
            pin = pinned(held.pin, page.log_key, page.log_key_history, self._clock.now())
        except NotEndorsed as error:
            raise FeedRejected(str(error)) from error
        if page.epoch == held.position.epoch and page.revision < held.position.revision:
            raise FeedRejected(
                f"policy set `{page.revision}` is older than `{held.position.revision}`, which was "
                "seen of the same store"
            )
        if page.epoch != asked.epoch and not page.reset:
            raise FeedFailed("the answer is of another store and does not begin anew")
        return pin

    def _start_over(self) -> None:
        log.warning("the policy set's copy is damaged: fetching it anew")
        self._documents.start_over()
        # What the damaged file gave passed its digest; but no name may be taken for absent because
        # the new file is still empty.
        self._policy_set.reset(0)
        self._on_change(None)

    def _pause(self, failures: int) -> float:
        """Seconds, with jitter: a fleet that lost its centre must not come back in step."""
        ceiling = min(self._longest_pause, FIRST_PAUSE * (1 << min(failures, 10)))
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing
