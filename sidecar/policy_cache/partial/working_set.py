"""The documents that this sidecar has used, on disk. Knows each one's content, or that it does not
exist, all at one revision. About other names it knows nothing.

A change is put in force in one write, so the set never mixes two revisions, even after a crash.
Knows nothing of how documents get here, nor of whether to trust them.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sidecar.policy_cache.cache_file import CacheDamaged, CacheFile
from sidecar.policy_cache.document_fetcher import MissingDocument
from sidecar.policy_cache.feed import Position
from sidecar.policy_cache.full.full_store import NoPolicySet
from sidecar.policy_cache.key_pin import KeyPin

MAX_DOCUMENTS = 50_000
"""The most documents held; the oldest entry goes first. Names that strangers try count too."""

_CHUNK = 500
_FETCH = "SELECT digest, body FROM held WHERE name = ?"
_SET = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_STORE = "INSERT OR REPLACE INTO held (name, digest, body) VALUES (?, ?, ?)"
_TRIM = "DELETE FROM held WHERE id IN (SELECT id FROM held ORDER BY id LIMIT ?) AND name NOT IN"


class HeldDocument(NamedTuple):
    """A document: its digest and body, or "" and None if it does not exist."""

    digest: str
    body: bytes | None


ABSENT = HeldDocument("", None)


class WorkingSet:
    """The working set in a `CacheFile`. `fetch` is what `PolicySet` reads through. `required` names
    are never trimmed."""

    def __init__(self, file: CacheFile, required: Iterable[str] = ()) -> None:
        self._file = file
        self._required = tuple(required)
        self._load()

    def _load(self) -> None:
        connection = self._file.connection
        meta: dict[str, Any] = dict(connection.execute("SELECT name, value FROM meta"))
        self.tenant_id: str | None = meta.get("tenant_id")
        self.pin = KeyPin.from_meta(meta)
        self.position = Position(meta.get("held_epoch", ""), meta.get("held_revision", 0))
        self.as_of: int | None = meta.get("held_as_of")
        (self._count,) = connection.execute("SELECT count(*) FROM held").fetchone()

    @property
    def damaged(self) -> bool:
        """Whether a read found damage in the file or in a document."""
        return self._file.damaged

    def fetch(self, name: str) -> bytes | None:
        """The body in force, or None if the tenant has no such document. Raises `NoPolicySet`,
        `MissingDocument` if it is not held, and `CacheDamaged`."""
        if not self.position.epoch:
            raise NoPolicySet(NoPolicySet.__doc__)
        try:
            row = self._file.connection.execute(_FETCH, (name,)).fetchone()
        except sqlite3.DatabaseError as error:
            self._file.damaged = True
            raise CacheDamaged(f"the policy cache can't be read: {error}") from error
        if row is None:
            raise MissingDocument(name)
        digest, body = row
        if body is None:
            return None
        # A flipped bit on disk must not become an allowed source.
        if hashlib.sha256(body).hexdigest() != digest:
            self._file.damaged = True
            raise CacheDamaged(f"document `{name}` does not match its digest")
        return bytes(body)

    def digests(self, among: Sequence[str] | None = None) -> dict[str, str]:
        """The digest of each document held, "" for one known not to exist; of `among`, or of
        all."""
        execute = self._file.connection.execute
        if among is None:
            return dict(execute("SELECT name, digest FROM held"))
        found: dict[str, str] = {}
        for at in range(0, len(among), _CHUNK):
            chunk = among[at : at + _CHUNK]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT name, digest FROM held WHERE name IN ({marks})"  # noqa: S608  # marks
            found |= dict(execute(query, chunk))
        return found

    def put_in_force(
        self, position: Position, documents: Mapping[str, HeldDocument], *, alone: bool = False
    ) -> None:
        """Store these documents; everything held is then at this position. Another epoch is another
        store: everything else goes. With `alone` too: nothing else is known at this position."""
        former = self.position
        other = alone or (bool(former.epoch) and former.epoch != position.epoch)
        with self._file.transaction() as connection:
            if other:
                connection.execute("DELETE FROM held")
            connection.executemany(_STORE, [(name, *each) for name, each in documents.items()])
            values = {"held_epoch": position.epoch, "held_revision": position.revision}
            connection.executemany(_SET, list(values.items()))
        # All of it is on disk as one write. If we die here, the restart begins at the new revision.
        self.position = position
        self._count = len(documents) if other else self._count + len(documents)
        if self._count > MAX_DOCUMENTS:
            self._trim()

    def confirm(self, as_of: int) -> None:
        """Note that the set was current at `as_of` (microseconds)."""
        with self._file.transaction() as connection:
            connection.execute(_SET, ("held_as_of", as_of))
        self.as_of = as_of

    def set_origin(self, tenant_id: str, pin: KeyPin) -> None:
        """Store whose policy set this is, and which key signs it."""
        values = {"tenant_id": tenant_id, **pin.to_meta()}
        with self._file.transaction() as connection:
            connection.executemany(_SET, list(values.items()))
        self.tenant_id, self.pin = tenant_id, pin

    def start_over(self) -> None:
        """Set a damaged file aside and start empty, but keep the tenant and the key pin."""
        tenant_id, pin = self.tenant_id, self.pin
        self._file.start_over()
        self._load()
        if tenant_id is not None and pin is not None:
            self.set_origin(tenant_id, pin)

    def _trim(self) -> None:
        marks = ",".join("?" * len(self._required))
        with self._file.transaction() as connection:
            # A tenth at a time, so that not every new document causes a trim.
            connection.execute(f"{_TRIM} ({marks})", (MAX_DOCUMENTS // 10, *self._required))
            (self._count,) = connection.execute("SELECT count(*) FROM held").fetchone()
