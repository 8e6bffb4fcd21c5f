"""The documents of a policy set that this sidecar has looked at, on disk. Knows what each name's
document is or that there is none, at one revision; of any other name it knows nothing.

What changes is put in force in one write, so the copy is never of two revisions, wherever we are
killed. Knows nothing of how documents get here, nor of whether to believe them.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sidecar.policy_cache.cache_file import CacheDamaged, CacheFile
from sidecar.policy_cache.document_fetcher import MissingDocument
from sidecar.policy_cache.feed import Position
from sidecar.policy_cache.full_store import NoPolicySet
from sidecar.policy_cache.key_pin import KeyPin

MOST = 50_000
"""Documents that are kept; the one that was put here longest ago goes first. Names that strangers
try are among them."""

_CHUNK = 500
_FETCH = "SELECT digest, body FROM held WHERE name = ?"
_SET = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_STORE = "INSERT OR REPLACE INTO held (name, digest, body) VALUES (?, ?, ?)"
_TRIM = "DELETE FROM held WHERE id IN (SELECT id FROM held ORDER BY id LIMIT ?) AND name NOT IN"


class Proven(NamedTuple):
    """What a name's document is: its digest and body, or "" and None where there is none."""

    digest: str
    body: bytes | None


ABSENT = Proven("", None)


class WorkingSet:
    """The working set in a `CacheFile`. `fetch` is the port of `PolicySet`; `kept` are names that
    stay, whatever has to go."""

    def __init__(self, file: CacheFile, kept: Iterable[str] = ()) -> None:
        self._file = file
        self._kept = tuple(kept)
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
        """Whether a read found the file, or a document in it, to be other than it was written."""
        return self._file.damaged

    def fetch(self, name: str) -> bytes | None:
        """The body in force, or None where the tenant has no such document. Raises `NoPolicySet`,
        `MissingDocument` where that is not known here, and `CacheDamaged`."""
        if not self.position.epoch:
            raise NoPolicySet(NoPolicySet.__doc__)
        try:
            row = self._file.connection.execute(_FETCH, (name,)).fetchone()
        except sqlite3.DatabaseError as error:
            self._file.damaged = True
            raise CacheDamaged(f"the policy set's copy can't be read: {error}") from error
        if row is None:
            raise MissingDocument(name)
        digest, body = row
        if body is None:
            return None
        if hashlib.sha256(body).hexdigest() != digest:
            self._file.damaged = True
            raise CacheDamaged(f"document `{name}` differs from its digest")
        return bytes(body)

    def held(self, among: Sequence[str] | None = None) -> dict[str, str]:
        """The digest of each document that is held, "" of one that is known not to be there; of
        `among`, or of all."""
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
        self, position: Position, proven: Mapping[str, Proven], *, alone: bool = False
    ) -> None:
        """These documents, and at this position all that is held. Another epoch is another store:
        nothing of the one before stays. With `alone` nothing stays either: what else was held is
        not known at this position."""
        former = self.position
        other = alone or (bool(former.epoch) and former.epoch != position.epoch)
        with self._file.transaction() as connection:
            if other:
                connection.execute("DELETE FROM held")
            connection.executemany(_STORE, [(name, *each) for name, each in proven.items()])
            values = {"held_epoch": position.epoch, "held_revision": position.revision}
            connection.executemany(_SET, list(values.items()))
        # All of it is on disk as one write. If we die here, the restart begins at the new revision.
        self.position = position
        self._count = len(proven) if other else self._count + len(proven)
        if self._count > MOST:
            self._trim()

    def confirm(self, as_of: int) -> None:
        """The set was current at `as_of` (microseconds)."""
        with self._file.transaction() as connection:
            connection.execute(_SET, ("held_as_of", as_of))
        self.as_of = as_of

    def know(self, tenant_id: str, pin: KeyPin) -> None:
        """Whose policy set it is, and by which key it is signed."""
        values = {"tenant_id": tenant_id, **pin.to_meta()}
        with self._file.transaction() as connection:
            connection.executemany(_SET, list(values.items()))
        self.tenant_id, self.pin = tenant_id, pin

    def start_over(self) -> None:
        """Set a damaged file aside and begin empty, keeping whose log this is."""
        tenant_id, pin = self.tenant_id, self.pin
        self._file.start_over()
        self._load()
        if tenant_id is not None and pin is not None:
            self.know(tenant_id, pin)

    def _trim(self) -> None:
        marks = ",".join("?" * len(self._kept))
        with self._file.transaction() as connection:
            connection.execute(f"{_TRIM} ({marks})", (MOST // 10, *self._kept))
            (self._count,) = connection.execute("SELECT count(*) FROM held").fetchone()
