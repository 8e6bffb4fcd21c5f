"""The documents of a policy set on disk: those in force, and those of a change still arriving.

A change comes in pages. Its documents are stored beside those in force under their own, higher
revision (after a reset under the next generation), where `fetch` does not see them. One small write
of the position then puts all of them in force together. If the process dies before that write, the
store is still whole at its old revision, and the next start deletes what had arrived.

Knows nothing of what documents say, nor of whether to trust a page.
"""

import hashlib
import sqlite3
from collections.abc import Mapping
from typing import Any

from sidecar.policy_cache.cache_file import CacheDamaged, CacheFile
from sidecar.policy_cache.feed import FeedPage, Position, verify_digest
from sidecar.policy_cache.key_pin import KeyPin


class NoPolicySet(LookupError):
    """no policy set has arrived yet"""


MAX_CHANGED_NAMES = 4096
"""With more changed names than this, `put_in_force` returns None: everything may have changed."""

_SWEEP_ROWS = 2000

_FETCH = (
    "SELECT digest, body FROM documents WHERE generation = ? AND name = ? AND revision <= ?"
    " ORDER BY revision DESC LIMIT 1"
)
_STORE = "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)"
_SET = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_UNFINISHED = "DELETE FROM documents WHERE generation > ? OR (generation = ? AND revision > ?)"
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
_ALL_REPLACED = (
    "DELETE FROM documents AS old WHERE generation = ?1 AND (body IS NULL OR EXISTS"
    " (SELECT 1 FROM documents AS later WHERE later.generation = ?1 AND later.name = old.name"
    "  AND later.revision > old.revision))"
)


class FullStore:
    """The policy set in a `CacheFile`. `fetch` is what `PolicySet` reads through."""

    def __init__(self, file: CacheFile) -> None:
        self._file = file
        self._load()

    def _load(self) -> None:
        meta: dict[str, Any] = dict(self._file.connection.execute("SELECT name, value FROM meta"))
        self.position = Position(meta.get("epoch", ""), meta.get("revision", 0))
        self.as_of: int | None = meta.get("as_of")
        self.tenant_id: str | None = meta.get("tenant_id")
        self.pin = KeyPin.from_meta(meta)
        self._generation: int = meta.get("generation", 0)
        self._forget_arrivals()
        self._file.connection.execute(
            _UNFINISHED, (self._generation, self._generation, self.position.revision)
        )

    def _forget_arrivals(self) -> None:
        self._arriving: set[str] | None = set()
        self._arriving_at: Position | None = None
        self._arriving_generation = self._generation

    @property
    def damaged(self) -> bool:
        """Whether a read found damage in the file or in a document."""
        return self._file.damaged

    @property
    def next_position(self) -> Position:
        """Where the next page must begin: after everything that has arrived, in force or not."""
        return self._arriving_at or self.position

    def fetch(self, name: str) -> bytes | None:
        """The body in force, or None if the tenant has no such document.

        Raises `NoPolicySet`, and `CacheDamaged` for a body that differs from what was stored: a
        flipped bit on disk must not become an allowed source.
        """
        if not self.position.epoch:
            raise NoPolicySet(NoPolicySet.__doc__)
        try:
            row = self._file.connection.execute(
                _FETCH, (self._generation, name, self.position.revision)
            ).fetchone()
        except sqlite3.DatabaseError as error:
            self._file.damaged = True
            raise CacheDamaged(f"the policy cache can't be read: {error}") from error
        if row is None or row[1] is None:
            return None
        digest, body = row
        if hashlib.sha256(body).hexdigest() != digest:
            self._file.damaged = True
            raise CacheDamaged(f"document `{name}` does not match its digest")
        return bytes(body)

    def store(self, page: FeedPage) -> None:
        """Store a page's documents, not yet in force. Raises `FeedFailed` if a body does not match
        its digest; then nothing of the page is stored."""
        rows = [verify_digest(document) for document in page.documents]
        if page.reset:
            # INVARIANT: a generation never mixes two stores, or one store before and after a reset.
            self.discard()
            self._arriving_generation = self._generation + 1
            self._arriving = None
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
        """Put what has arrived in force, complete at `page.revision`. Returns the names that
        changed, or None if any may have."""
        changed = self._arriving
        position = Position(page.epoch, page.revision)
        self._write_meta(
            {
                "epoch": position.epoch,
                "revision": position.revision,
                "generation": self._arriving_generation,
                "as_of": as_of,
                "tenant_id": page.tenant_id,
            }
        )
        # All of it is on disk as one write. If we die here, the restart begins at the new revision.
        self.position, self.as_of = position, as_of
        self.tenant_id = page.tenant_id
        self._generation = self._arriving_generation
        self._forget_arrivals()
        self._drop_replaced(changed)
        return changed

    def set_pin(self, pin: KeyPin) -> None:
        """Store the log's key."""
        if pin != self.pin:
            self._write_meta(pin.to_meta())
            self.pin = pin

    def confirm(self, as_of: int) -> None:
        """Note that nothing changed and the set was current at `as_of` (microseconds)."""
        self._write_meta({"as_of": as_of})
        self.as_of = as_of

    def discard(self) -> None:
        """Delete what has arrived and is not in force."""
        self._forget_arrivals()
        with self._file.transaction() as connection:
            connection.execute(
                _UNFINISHED, (self._generation, self._generation, self.position.revision)
            )

    def sweep(self) -> None:
        """Delete some of an earlier generation: never so much that a decision has to wait."""
        with self._file.transaction() as connection:
            connection.execute(_FORMER_GENERATIONS, (self._generation, _SWEEP_ROWS))

    def start_over(self) -> None:
        """Set a damaged file aside and start empty, but keep the tenant and the key pin."""
        tenant_id, pin = self.tenant_id, self.pin
        self._file.start_over()
        if tenant_id is not None and pin is not None:
            self._write_meta({"tenant_id": tenant_id, **pin.to_meta()})
        self._load()

    def _write_meta(self, values: Mapping[str, str | int]) -> None:
        with self._file.transaction() as connection:
            connection.executemany(_SET, list(values.items()))

    def _drop_replaced(self, changed: set[str] | None) -> None:
        generation, revision = self._generation, self.position.revision
        with self._file.transaction() as connection:
            if changed is None:
                connection.execute(_ALL_REPLACED, (generation,))
            else:
                rows = [(generation, name, revision) for name in changed]
                connection.executemany(_REPLACED, rows)
