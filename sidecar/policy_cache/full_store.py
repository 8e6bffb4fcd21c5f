"""The documents of a policy set on disk: those in force, and those of a change still arriving.

A change comes in pages. Its documents are stored beside those in force, where `fetch` does not see
them: under their own, higher revision, or after a reset under the next generation. One small write
of the position then puts all of them in force together.

Knows nothing of what documents say, nor of whether to trust a page.
"""

from sidecar.policy_cache.feed import FeedPage, Position, verify_digest
from sidecar.policy_cache.policy_store import PolicyStore

MAX_CHANGED_NAMES = 4096
"""With more changed names than this, `put_in_force` returns None: everything may have changed."""

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


class FullStore(PolicyStore):
    """Every document of a policy set."""

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
        """The position where the next page must begin: after everything that has arrived, in force
        or not."""
        return self._arriving_at or self.position

    def fetch(self, name: str) -> bytes | None:
        found = self._find(name, _FETCH, self._generation, name, self.position.revision)
        return None if found is None else found[1]

    def list_documents(self, after: str, before: str, count: int) -> list[tuple[str, bytes]]:
        """Return the names and bodies, in order, of the first `count` documents in force with a
        name between the two. Raises like `fetch`."""
        values = (self._generation, after, before, self.position.revision, count)
        return self._list(_LIST, *values)

    def store(self, page: FeedPage) -> None:
        """Store a page's documents, not yet in force. Raises `FeedFailed` if a body does not match
        its digest; then nothing of the page is stored."""
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
        """Put all that has arrived in force, as the complete set at `page.revision`. Returns the
        names that changed, or None if any may have. Follow with `drop_replaced`."""
        changed, generation = self._arriving, self._arriving_generation
        # If we die before this write, the old set is still whole, and `_load` deletes what arrived.
        with self._file.transaction() as connection:
            self._set(
                connection,
                epoch=page.epoch,
                revision=page.revision,
                generation=generation,
                as_of=as_of,
            )
        # All of it is on disk as one write. If we die here, the restart begins at the new revision.
        self.position, self.as_of = Position(page.epoch, page.revision), as_of
        self._generation = generation
        self._forget_arrivals()
        return changed

    def discard(self) -> None:
        """Delete the documents that have arrived but are not in force."""
        self._forget_arrivals()
        with self._file.transaction() as connection:
            connection.execute(_UNFINISHED, (self._generation, self.position.revision))

    def sweep(self) -> None:
        """Delete some rows of earlier generations: not many at once, because decisions wait."""
        with self._file.transaction() as connection:
            connection.execute(_FORMER_GENERATIONS, (self._generation, _SWEEP_ROWS))

    def drop_replaced(self, changed: set[str] | None) -> None:
        """Delete the rows no longer in force, of documents with these names (of all if None)."""
        # Not part of `put_in_force`, which must not fail for lack of the space that this needs.
        # If this fails, or we die before it, old rows only take up space.
        generation, revision = self._generation, self.position.revision
        with self._file.transaction() as connection:
            if changed is None:
                connection.execute(_ALL_REPLACED, (generation,))
            else:
                rows = [(generation, name, revision) for name in changed]
                connection.executemany(_REPLACED, rows)
