"""The loop that keeps a partial replica current without Redis: it follows the control API's long
poll, and looks up missing documents by name.

A page of changes names every document that changed, so those that are held are replaced and the
others stay unknown until a decision needs them. If a page can't say what changed (another store,
or more changes than fit in one page), only the required documents are kept.

Knows which answers may be trusted. Knows nothing of Redis. Differs from `full/poll_loop` in what it
does with a page: that loop stores every document of every page, this one only what is in use.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping

from sidecar.policy_cache.feed import (
    FeedDocument,
    FeedFailed,
    FeedForbidden,
    FeedPage,
    FeedRejected,
    LookupFeed,
    Position,
    reject_older,
    verify_digest,
)
from sidecar.policy_cache.feed_loop import FeedLoop
from sidecar.policy_cache.full.poll_loop import MAX_WAIT
from sidecar.policy_cache.partial.incremental_sync import IncrementalSync
from sidecar.policy_cache.partial.replica_state import ReplicaState
from sidecar.policy_cache.partial.working_set import HeldDocument

log = logging.getLogger(__name__)

MAX_TRIES = 8
MAX_LOOKUP_NAMES = 256


class _SetChanged(FeedFailed):
    """the policy set changed during the lookup"""


class ControlLoop(FeedLoop):
    """Follows `feed` into the working set while `run` runs. `verify_origin` checks whose an answer
    is and which key signs it, and raises `FeedRejected`."""

    def __init__(
        self,
        state: ReplicaState,
        feed: LookupFeed,
        sync: IncrementalSync,
        verify_origin: Callable[[FeedPage], None],
    ) -> None:
        limit = state.freshness.limit
        super().__init__(log, "the control API does not keep the policy set current", limit / 4)
        self._state = state
        self._working_set = state.working_set
        self._feed = feed
        self._put_in_force = sync.put_in_force
        self._verify_origin = verify_origin
        # Two polls and a failed one fit into the limit, as in `PollLoop`.
        self._wait = min(MAX_WAIT, limit / 4)

    async def run(self) -> None:
        """Never returns. May be cancelled at any time: nothing is ever half in force."""
        self._failed_in_a_row, settled = 0, False
        while True:
            try:
                # The first poll asks for what is already there instead of waiting for news.
                await self.step(self._wait if settled else 0.0)
            except (FeedFailed, FeedRejected, sqlite3.Error) as error:
                if isinstance(error, FeedForbidden):
                    self._state.freshness.expire(str(error))
                settled = False
                await asyncio.sleep(self._pause_after(error))
            else:
                self._failed_in_a_row, settled, self.refused = 0, True, None
                self._outage.recovered()

    async def step(self, wait: float) -> None:
        """One poll, and what follows from it. The answer may wait `wait` seconds for news."""
        position = self._working_set.position
        if not position.epoch:
            await self._begin(position)
            return
        clock, freshness = self._state.clock, self._state.freshness
        sent, as_of = clock.monotonic(), clock.now()
        self.polls += 1
        page = self._verify(await self._feed.next(position, wait), position)
        if self._working_set.position != position:
            return  # Redis was faster: this page is known already, or comes with the next poll
        if page.reset or page.more:
            await self._begin(position)
            return
        if page.revision != position.revision:
            self._apply(page)
        if (why := self._state.blocked()) is not None:
            # We may no longer decide by what we hold.
            freshness.expire(why)
            raise FeedFailed(why)
        freshness.confirm(sent)
        self._working_set.confirm(as_of)
        if wait and not page.documents and clock.monotonic() - sent < wait / 4:
            # A control API that is shutting down answers at once: do not poll it in a tight loop.
            await asyncio.sleep(self._max_pause)

    async def fetch(self, names: Iterable[str]) -> None:
        """Return once each of the names is held. Raises `FeedFailed`, `FeedRejected` and
        `sqlite3.Error`."""
        wanted = set(names)
        for _ in range(MAX_TRIES):
            position = self._working_set.position
            required = () if position.epoch else self._state.required
            try:
                page, found = await self._lookup(wanted.union(required))
            except _SetChanged:
                continue
            self._verify(page, position)
            if self._working_set.position != position:
                continue
            at = Position(page.epoch, page.revision)
            if at == position or not position.epoch:
                self._put_in_force(at, found, set())
                return
            # The set has moved on since our last poll: catch up before adding to it.
            await self.step(0.0)
        raise FeedFailed("the policy set changes faster than it can be looked up")

    async def _begin(self, former: Position) -> None:
        """Hold the required documents at the current revision, and nothing else."""
        page, found = await self._lookup(self._state.required)
        self._verify(page, former, new_store=True)
        if self._working_set.position == former:
            self._put_in_force(Position(page.epoch, page.revision), found, None, alone=True)

    def _apply(self, page: FeedPage) -> None:
        changed = {document.name: document for document in page.documents}
        held = self._working_set.digests(sorted(changed))
        found = {name: _verified(changed[name]) for name in held}
        self._put_in_force(Position(page.epoch, page.revision), found, set(changed))

    async def _lookup(self, names: Iterable[str]) -> tuple[FeedPage, Mapping[str, HeldDocument]]:
        """The last page, and all documents, which are from one revision. Raises `_SetChanged` if
        the set changed meanwhile."""
        left = sorted(set(names))
        found: dict[str, HeldDocument] = {}
        first: FeedPage | None = None
        while True:
            page = await self._feed.lookup(left[:MAX_LOOKUP_NAMES])
            if first is not None and (page.epoch, page.revision) != (first.epoch, first.revision):
                raise _SetChanged(_SetChanged.__doc__)
            first = page
            new = {document.name: _verified(document) for document in page.documents}
            if not new.keys() & set(left):
                raise FeedFailed("the control API's answer lacks the documents asked for")
            found |= new
            left = [name for name in left if name not in found]
            if not left:
                return page, found

    def _verify(self, page: FeedPage, position: Position, *, new_store: bool = False) -> FeedPage:
        """Raise `FeedRejected` for an answer that must not be trusted. `position` is what was held
        when we asked. `new_store`: the answer may come from another store."""
        self._verify_origin(page)
        reject_older(page.epoch, page.revision, position)
        if page.epoch != position.epoch and position.epoch and not (page.reset or new_store):
            # A lookup reached another store. The next poll says so, and starts over.
            raise FeedFailed("the answer is from another store than what is held")
        return page


def _verified(document: FeedDocument) -> HeldDocument:
    body = verify_digest(document).body
    return HeldDocument("" if body is None else document.digest, body)
