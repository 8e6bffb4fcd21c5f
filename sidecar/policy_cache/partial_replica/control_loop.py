"""Keeps a partial replica current without Redis. Follows the control API's long poll, whose pages
name every document that changed. Documents that the replica holds are replaced; the others are left
out until a decision needs them."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from sidecar.policy_cache.feed import (
    FeedDocument,
    FeedFailed,
    FeedPage,
    LookupFeed,
    Position,
    reject_older,
    verify_digest,
)
from sidecar.policy_cache.partial_replica.incremental_sync import IncrementalSync
from sidecar.policy_cache.partial_replica.working_set import HeldDocument, PartialState
from sidecar.policy_cache.policy_view import ListingInterrupted
from sidecar.policy_cache.replica import LongPollLoop

log = logging.getLogger(__name__)

MAX_TRIES = 8
MAX_LOOKUP_NAMES = 256  # the control API accepts no more in one request


class _SetChanged(FeedFailed):
    """the policy set changed during the lookup"""


class ControlLoop(LongPollLoop):
    """Applies the pages of `feed` to the working set for as long as `run` runs. `verify_origin`
    raises `FeedRejected` if an answer is about another tenant or shows a signing key that is not
    trusted."""

    def __init__(
        self,
        state: PartialState,
        feed: LookupFeed,
        sync: IncrementalSync,
        verify_origin: Callable[[FeedPage], None],
    ) -> None:
        what = "the control API does not keep the policy set current"
        super().__init__(log, what, "the control API keeps the policy set current again", state)
        self._state: PartialState = state
        self._working_set = state.working_set
        self._feed = feed
        self._put_in_force = sync.put_in_force
        self._verify_origin = verify_origin

    async def run(self) -> None:
        """Poll until cancelled, which may happen at any time: no change is ever half in force."""
        self._backoff.reset()
        settled = False
        while True:
            # The first poll asks for what is already there instead of waiting for news.
            settled = await self._attempt(self.step(self._wait if settled else 0.0))

    async def step(self, wait: float) -> None:
        """Poll once and apply the answer. The control API may hold the answer back for `wait`
        seconds until something changes."""
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
        # Another store, or more changes than fit in one page: the page does not list them all.
        if page.reset or page.more:
            await self._begin(position)
            return
        if page.revision != position.revision:
            self._apply(page)
        self._state.require_unblocked()
        freshness.confirm(sent)
        self._working_set.confirm(as_of)
        await self._throttle(page, wait, sent)

    async def fetch(self, names: Iterable[str]) -> None:
        """Fetch the documents with these names, and return once the working set holds each of them.
        Raises `FeedFailed`, `FeedRejected` and `sqlite3.Error`."""
        wanted = set(names)
        for _ in range(MAX_TRIES):
            position = self._working_set.position
            # The first documents put a set in force, so the required ones must be among them.
            required = () if position.epoch else self._state.required
            try:
                page, found = await self._lookup(wanted.union(required))
            except _SetChanged:
                continue
            self._verify(page, position)
            # Redis was faster: the documents found may be older than those now in force.
            if self._working_set.position != position:
                continue
            at = Position(page.epoch, page.revision)
            if at == position or not position.epoch:
                self._put_in_force(at, found, set())
                return
            # The set has moved on since our last poll: catch up before adding to it.
            await self.step(0.0)
        raise FeedFailed("the policy set changes faster than it can be looked up")

    async def everything(self) -> AsyncIterator[Sequence[FeedDocument]]:
        """Yield all documents of the tenant, verified, as of the position that the working set has
        when the last of them arrive. Raises `ListingInterrupted` if the set has changed meanwhile,
        and the errors of `fetch`."""
        # Asks like a replica that holds nothing: page after page, from the beginning.
        position, asked = self._working_set.position, Position("", 0)
        while True:
            page = await self._feed.next(asked, 0.0)
            self._verify(page, position, new_store=True)
            if (page.epoch, page.revision) != position:
                await self.step(0.0)  # catch up, so that the next attempt finds us there
                raise ListingInterrupted(ListingInterrupted.__doc__)
            yield [verify_digest(document) for document in page.documents]
            if self._working_set.position != position:
                raise ListingInterrupted(ListingInterrupted.__doc__)
            if not page.more:
                return
            asked = Position(page.epoch, page.documents[-1].revision)

    async def _begin(self, former: Position) -> None:
        """Replace everything that the working set holds by the required documents at the current
        revision."""
        page, found = await self._lookup(self._state.required)
        self._verify(page, former, new_store=True)
        if self._working_set.position == former:
            self._put_in_force(Position(page.epoch, page.revision), found, None, alone=True)

    def _apply(self, page: FeedPage) -> None:
        changed = {document.name: document for document in page.documents}
        # A document that is not held stays unknown, so the set grows only with what is used.
        held = self._working_set.digests(sorted(changed))
        found = {name: _verified(changed[name]) for name in held}
        self._put_in_force(Position(page.epoch, page.revision), found, set(changed))

    async def _lookup(self, names: Iterable[str]) -> tuple[FeedPage, Mapping[str, HeldDocument]]:
        """Look up the documents with these names, in several requests if necessary. Returns the
        last page and all the documents found, which are from one revision. Raises `_SetChanged` if
        the set changes between two requests."""
        left = sorted(set(names))
        found: dict[str, HeldDocument] = {}
        first: FeedPage | None = None
        while True:
            page = await self._feed.lookup(left[:MAX_LOOKUP_NAMES])
            if first is not None and (page.epoch, page.revision) != (first.epoch, first.revision):
                raise _SetChanged(_SetChanged.__doc__)
            first = page
            new = {document.name: _verified(document) for document in page.documents}
            # Without progress, the loop would repeat the same request forever.
            if not new.keys() & set(left):
                raise FeedFailed("the control API's answer lacks the documents asked for")
            found |= new
            left = [name for name in left if name not in found]
            if not left:
                return page, found

    def _verify(self, page: FeedPage, position: Position, *, new_store: bool = False) -> FeedPage:
        """Return the page if it can be trusted. Raises `FeedRejected` if it must not be trusted,
        and `FeedFailed` if it is from another store without `reset` or `new_store`. `position` is
        the working set's position when the page was requested."""
        self._verify_origin(page)
        reject_older(page.epoch, page.revision, position)
        if page.epoch != position.epoch and position.epoch and not (page.reset or new_store):
            # A lookup reached another store. The next poll's answer shows it, and starts over.
            raise FeedFailed("the answer is from another store than what is held")
        return page


def _verified(document: FeedDocument) -> HeldDocument:
    body = verify_digest(document).body
    return HeldDocument("" if body is None else document.digest, body)
