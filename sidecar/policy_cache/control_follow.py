"""Keeps a working set current without Redis: follows the control API's long poll, and looks up by
name what is not held.

A page of changes names every document that changed, so those that are held are replaced and the
others stay unknown until a decision needs them. Where a page can't say what changed (another
store, or more changes than one page holds) only the names that are always wanted are kept.

Knows what an answer must be like to be believed. Knows nothing of Redis.
"""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

from policies.ground.clock import Clock
from sidecar.policy_cache.feed import (
    FeedDocument,
    FeedFailed,
    FeedForbidden,
    FeedPage,
    LookUp,
    Position,
    checked,
)
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.incremental_sync import IncrementalSync
from sidecar.policy_cache.poll_loop import FIRST_PAUSE, LONGEST_PAUSE, LONGEST_WAIT, FeedRejected
from sidecar.policy_cache.working_set import Proven, WorkingSet
from sidecar.spool.state_logger import StateLogger

log = logging.getLogger(__name__)

TRIES = 8
MOST_NAMES = 256
"""Names of one look-up."""


class _Moved(FeedFailed):
    """the policy set changed while it was looked up"""


class ControlFollower:
    """Follows `feed` into `working_set` for as long as `run` runs.

    `believe` checks whose an answer is and by which key it is signed, and raises `FeedRejected`;
    `barred` says why this sidecar may not decide, None where it may; `kept` are names that are
    always wanted. `refused`, `polls` and `failures` are as in `Follower`.
    """

    def __init__(
        self,
        feed: LookUp,
        working_set: WorkingSet,
        catch_up: IncrementalSync,
        freshness: Freshness,
        clock: Clock,
        kept: Sequence[str],
        believe: Callable[[FeedPage], None],
        barred: Callable[[], str | None],
    ) -> None:
        self.refused: str | None = None
        self.polls = 0
        self.failures = 0
        self._feed = feed
        self._held = working_set
        self._put = catch_up.put_in_force
        self._freshness = freshness
        self._clock = clock
        self._kept = tuple(kept)
        self._believe = believe
        self._barred = barred
        self._trouble = StateLogger(log, "the control API does not keep the policy set current")
        # Two polls and a failed one fit into the limit, as in `Follower`.
        self._wait = min(LONGEST_WAIT, freshness.limit / 4)
        self._longest_pause = min(LONGEST_PAUSE, freshness.limit / 4)

    @property
    def trouble(self) -> str | None:
        """Why the last poll failed; None where it did not."""
        return self._trouble.now

    async def run(self) -> None:
        """Returns never. May be cancelled at any time: nothing is in force by halves."""
        failures, settled = 0, False
        while True:
            try:
                # The first poll asks what is known already, rather than waiting for news.
                await self.step(self._wait if settled else 0.0)
                failures, settled, self.refused = 0, True, None
                self._trouble.over()
                continue
            except FeedForbidden as error:
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
            settled = False
            ceiling = min(self._longest_pause, FIRST_PAUSE * (1 << min(failures, 10)))
            # With jitter: a fleet that lost its control API must not come back in step.
            await asyncio.sleep(ceiling * random.uniform(0.5, 1.0))  # noqa: S311  # spreads load
            failures += 1

    async def step(self, wait: float) -> None:
        """One poll and what follows from it. `wait` is how many seconds the answer may wait for
        news."""
        position = self._held.position
        if not position.epoch:
            await self._begin(position)
            return
        sent, as_of = self._clock.monotonic(), self._clock.now()
        self.polls += 1
        page = self._judged(await self._feed.next(position, wait), position)
        if self._held.position != position:
            return  # Redis was faster: what this page says is known, or comes with the next
        if page.reset or page.more:
            await self._begin(position)
            return
        if page.revision != position.revision:
            self._apply(page)
        if (why := self._barred()) is not None:
            # What we hold is no longer ours to decide by.
            self._freshness.expire(why)
            raise FeedFailed(why)
        self._freshness.confirm(sent)
        self._held.confirm(as_of)
        if wait and not page.documents and self._clock.monotonic() - sent < wait / 4:
            # A control API that is stopping answers at once: it must not be asked in a circle.
            await asyncio.sleep(self._longest_pause)

    async def bring(self, names: Iterable[str]) -> None:
        """Returns once each of the names is held. Raises `FeedFailed`, `FeedRejected`, and
        `sqlite3.Error`."""
        wanted = set(names)
        for _ in range(TRIES):
            position = self._held.position
            kept = () if position.epoch else self._kept
            try:
                page, found = await self._look_up(wanted.union(kept))
            except _Moved:
                continue
            self._judged(page, position)
            if self._held.position != position:
                continue
            at = Position(page.epoch, page.revision)
            if at == position or not position.epoch:
                self._put(at, found, set())
                return
            # The set has moved on since our last poll: catch up before adding to it.
            await self.step(0.0)
        raise FeedFailed("the policy set changes faster than it can be looked up")

    async def _begin(self, former: Position) -> None:
        """Hold what is always wanted, and nothing else, at the revision of now."""
        page, found = await self._look_up(self._kept)
        self._judged(page, former, another=True)
        if self._held.position == former:
            self._put(Position(page.epoch, page.revision), found, None, alone=True)

    def _apply(self, page: FeedPage) -> None:
        changed = {document.name: document for document in page.documents}
        held = self._held.held(sorted(changed))
        found = {name: _proven(changed[name]) for name in held}
        self._put(Position(page.epoch, page.revision), found, set(changed))

    async def _look_up(self, names: Iterable[str]) -> tuple[FeedPage, Mapping[str, Proven]]:
        """The last page, and all documents, which are of one revision. `_Moved` where the set
        changed meanwhile."""
        left = sorted(set(names))
        found: dict[str, Proven] = {}
        first: FeedPage | None = None
        while True:
            page = await self._feed.named(left[:MOST_NAMES])
            if first is not None and (page.epoch, page.revision) != (first.epoch, first.revision):
                raise _Moved(_Moved.__doc__)
            first = page
            fresh = {document.name: _proven(document) for document in page.documents}
            if not fresh.keys() & set(left):
                raise FeedFailed("the control API did not answer about the documents asked for")
            found |= fresh
            left = [name for name in left if name not in found]
            if not left:
                return page, found

    def _judged(self, page: FeedPage, position: Position, *, another: bool = False) -> FeedPage:
        """`FeedRejected` for an answer that must not be believed. `position` is what was held when
        it
        was asked for; `another` says that the answer may be of another store."""
        self._believe(page)
        if page.epoch == position.epoch and page.revision < position.revision:
            raise FeedRejected(
                f"policy set `{page.revision}` is older than `{position.revision}`, which was seen "
                "of the same store"
            )
        if page.epoch != position.epoch and position.epoch and not (page.reset or another):
            # A look-up reached another store: the next poll says so, and begins anew.
            raise FeedFailed("the answer is of another store than what is held")
        return page


def _proven(document: FeedDocument) -> Proven:
    body = checked(document).body
    return Proven("" if body is None else document.digest, body)
