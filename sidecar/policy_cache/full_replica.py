"""A full replica: every document of the tenant's policy set, polled from the control API, verified,
and kept on disk. A document that the replica lacks does not exist.

A change comes in pages. Its documents are stored beside the documents in force, where `fetch` does
not see them: under their own, higher revision, or after a reset under the next generation. One
small write of the position then puts all of them in force together.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from policies.ground.clock import Clock
from policies.sets.signed_head import Claim
from sidecar.control.client import ControlClient
from sidecar.policy_cache.feed import (
    Feed,
    FeedFailed,
    FeedPage,
    Position,
    reject_older,
    verify_digest,
)
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.key_pin import KeyPin, verify_origin
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.policy_store import CacheFile, PolicyStore
from sidecar.policy_cache.policy_view import (
    AGENT_PREFIX,
    AgentDocuments,
    AllDocuments,
    DocumentFetcher,
    ListingInterrupted,
    OwnAgentOnly,
)
from sidecar.policy_cache.replica import (
    FeedName,
    Follower,
    LongPollLoop,
    OnChange,
    Replica,
    ReplicaState,
)
from sidecar.settings.model import SidecarSettings

MAX_CHANGED_NAMES = 4096
"""If more names than this have changed, `put_in_force` returns None: any document may have
changed."""

# The most rows deleted after one poll: deleting runs on the event loop, so decisions wait for it.
_SWEEP_ROWS = 2000

# A row of a higher revision is still arriving. A row without a body marks a removed document.
_FETCH = (
    "SELECT digest, body FROM documents WHERE generation = ? AND name = ? AND revision <= ?"
    " ORDER BY revision DESC LIMIT 1"
)
# The same for the names after one, up to another.
_LIST = (
    "SELECT name, digest, body FROM documents AS found"
    " WHERE generation = ?1 AND name > ?2 AND name < ?3 AND body IS NOT NULL AND revision ="
    " (SELECT max(revision) FROM documents AS latest WHERE latest.generation = ?1"
    "  AND latest.name = found.name AND latest.revision <= ?4)"
    " ORDER BY name LIMIT ?5"
)
_STORE = "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)"
_UNFINISHED = "DELETE FROM documents WHERE generation > ?1 OR (generation = ?1 AND revision > ?2)"
_FORMER_GENERATIONS = (
    "DELETE FROM documents WHERE rowid IN"
    " (SELECT rowid FROM documents WHERE generation < ? LIMIT ?)"
)
# Documents that a later revision replaced, and the markers of removed ones that cover nothing older
# any more.
_REPLACED = (
    "DELETE FROM documents WHERE generation = ?1 AND name = ?2 AND revision <= ?3 AND"
    " (body IS NULL OR revision < (SELECT max(revision) FROM documents AS latest"
    "  WHERE latest.generation = ?1 AND latest.name = ?2 AND latest.revision <= ?3))"
)
# The same for all names at once. It needs no revision: nothing is arriving while it runs.
_ALL_REPLACED = (
    "DELETE FROM documents AS old WHERE generation = ?1 AND (body IS NULL OR EXISTS"
    " (SELECT 1 FROM documents AS later WHERE later.generation = ?1 AND later.name = old.name"
    "  AND later.revision > old.revision))"
)


CHUNK = 50
"""The number of documents read at a time. Reading runs on the event loop, so decisions wait for
it."""
_END = AGENT_PREFIX[:-1] + chr(ord(AGENT_PREFIX[-1]) + 1)

log = logging.getLogger(__name__)


class FullStore(PolicyStore):
    _PREFIX = ""

    def _load(self) -> None:
        super()._load()
        found = self._file.connection.execute("SELECT value FROM meta WHERE name = 'generation'")
        self._generation: int = (found.fetchone() or (0,))[0]
        # The previous process may have died halfway through a change.
        self.discard()

    def _forget_arrivals(self) -> None:
        self._arriving: set[str] | None = set()
        self._arriving_at: Position | None = None
        self._arriving_generation = self._generation

    @property
    def next_position(self) -> Position:
        """The position after which the next page must begin: after everything that has arrived,
        whether in force or not."""
        return self._arriving_at or self.position

    def fetch(self, name: str) -> bytes | None:
        found = self._find(name, _FETCH, self._generation, name, self.position.revision)
        return None if found is None else found[1]

    def list_documents(self, after: str, before: str, count: int) -> list[tuple[str, bytes]]:
        """Return the first `count` documents in force whose name lies between `after` and `before`,
        as pairs of name and body in the order of names. Raises the errors of `fetch`."""
        return self._list(_LIST, self._generation, after, before, self.position.revision, count)

    def store(self, page: FeedPage) -> None:
        """Store a page's documents, without putting them in force. Raises `FeedFailed` if a body
        does not match its digest; then nothing of the page is stored."""
        rows = [verify_digest(document) for document in page.documents]
        if page.reset:
            # INVARIANT: a generation never mixes two stores, or one store before and after a reset.
            self.discard()
            self._arriving_generation = self._generation + 1
            self._arriving = None  # any name may have changed
        generation = self._arriving_generation
        with self._file.transaction() as connection:
            connection.executemany(_STORE, [(generation, *row) for row in rows])
        if self._arriving is not None:
            self._arriving.update(document.name for document in rows)
            if len(self._arriving) > MAX_CHANGED_NAMES:
                self._arriving = None
        last = rows[-1].revision if rows else self.next_position.revision
        self._arriving_at = Position(page.epoch, last)

    def put_in_force(self, page: FeedPage, as_of: int) -> set[str] | None:
        """Put all documents that have arrived in force, as the complete set at `page.revision`.
        Returns the names that changed, or None if any may have changed. Call `drop_replaced`
        afterwards."""
        changed, generation = self._arriving, self._arriving_generation
        # If we die before this write, the old set is still whole, and `_load` deletes what arrived.
        position = Position(page.epoch, page.revision)
        with self._file.transaction() as connection:
            self._set(connection, **position._asdict(), generation=generation, as_of=as_of)
        # All of it is on disk as one write. If we die here, the restart begins at the new revision.
        self.position, self.as_of = position, as_of
        self._generation = generation
        self._forget_arrivals()
        return changed

    def discard(self) -> None:
        """Delete the documents that have arrived but are not in force."""
        self._forget_arrivals()
        with self._file.transaction() as connection:
            connection.execute(_UNFINISHED, (self._generation, self.position.revision))

    def sweep(self) -> None:
        """Delete some rows of earlier generations. Only a few at a time, because decisions wait
        meanwhile."""
        with self._file.transaction() as connection:
            connection.execute(_FORMER_GENERATIONS, (self._generation, _SWEEP_ROWS))

    def drop_replaced(self, changed: set[str] | None) -> None:
        """Delete the rows that are no longer in force for documents with these names; None means
        all documents."""
        # Not part of `put_in_force`, which must not fail for lack of the space that this needs.
        # If this fails, or we die before it, old rows only take up space.
        generation, revision = self._generation, self.position.revision
        with self._file.transaction() as connection:
            if changed is None:
                connection.execute(_ALL_REPLACED, (generation,))
            else:
                rows = [(generation, name, revision) for name in changed]
                connection.executemany(_REPLACED, rows)

    async def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield the documents of all agents, like `AgentDocuments.read`."""
        position, after = self.position, AGENT_PREFIX
        while True:
            chunk = self.list_documents(after, _END, CHUNK)
            yield [body for _, body in chunk]
            if self.position != position:
                raise ListingInterrupted(ListingInterrupted.__doc__)
            if len(chunk) < CHUNK:
                return
            after = chunk[-1][0]


class PollLoop(LongPollLoop):
    """The loop that polls `feed`, saves its pages in `store`, and puts each complete change in
    force."""

    def __init__(self, state: ReplicaState, store: FullStore, feed: Feed) -> None:
        what, back = "the policy set is not updated", "the policy set is updated again"
        super().__init__(log, what, back, state)
        self.feed: FeedName = "control"
        self.forged = 0
        """The number of forged items seen. Always 0: everything here comes from the control API
        itself."""
        self._feed = feed
        self._store = store
        state.restore(store)

    def stop(self) -> None:
        """Do nothing: this loop may be cancelled at any time."""

    async def run(self) -> None:
        """Poll until cancelled. Retries after every failure."""
        while True:
            await self._attempt(self.step())

    async def step(self) -> None:
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
        """Return the pin of the log's key after this answer. Raises `FeedRejected` if the answer
        must not be trusted, and `FeedFailed` if it is from another store but does not start from
        the beginning."""
        store = self._store
        # These raise after a restored backup, a mistyped address or an attack. The set we hold then
        # becomes stale; an operator who trusts the new answers empties the cache directory.
        pin = verify_origin(page, store.tenant_id, store.pin, self._state.clock.now())
        reject_older(page.epoch, page.revision, store.position)
        if page.epoch != asked.epoch and not page.reset:
            why = "does not start from the beginning"
            raise FeedFailed(f"the answer is from another store but {why}")
        return pin


class FullReplica(Replica):
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
        parts = self.policy_set, self._freshness, self._clock
        return PollLoop(ReplicaState(*parts, on_change, on_other_store), self._store, self._feed)

    def document_fetcher(self) -> DocumentFetcher:
        return AllDocuments()

    def agent_documents(self) -> AgentDocuments:
        return OwnAgentOnly() if self._least else self._store

    async def published_claim(self, session_id: str) -> Claim | None:  # noqa: ARG002
        """Return None: without Redis no claims are published, so the control API has to be
        asked."""
        return None

    async def close(self) -> None:
        """Do nothing: a full replica has no connection of its own."""
