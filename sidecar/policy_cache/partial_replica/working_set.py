"""The documents that this sidecar has used, on disk. Knows each one's content, or that it does not
exist, all at one revision. About other names it knows nothing.

A change is put in force in one write, so the set never mixes two revisions, even after a crash.
Knows nothing of how documents get here, nor of whether to trust them.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.document_fetcher import MissingDocument
from sidecar.policy_cache.feed import Position
from sidecar.policy_cache.policy_store import PolicyStore

MAX_DOCUMENTS = 50_000
"""The most documents held; the oldest entry goes first. Names that strangers try count too."""

_CHUNK = 500  # SQLite limits the parameters of one statement
_FETCH = "SELECT digest, body FROM held WHERE name = ?"
_TRIM = """
DELETE FROM held WHERE id IN (SELECT id FROM held WHERE name NOT IN ({}) ORDER BY id LIMIT ?)
"""
_STORE = "INSERT OR REPLACE INTO held (name, digest, body) VALUES (?, ?, ?)"


class HeldDocument(NamedTuple):
    """A document: its digest and body, or "" and None if it does not exist."""

    digest: str
    body: bytes | None


ABSENT = HeldDocument("", None)


class WorkingSet(PolicyStore):
    """The documents in use. `required` names are never trimmed."""

    _PREFIX = "held_"

    def __init__(self, file: CacheFile, required: Iterable[str]) -> None:
        self._required = tuple(required)
        super().__init__(file)

    def _load(self) -> None:
        super()._load()
        self._count = _count(self._file.connection)

    def fetch(self, name: str) -> bytes | None:
        """As `PolicyStore.fetch`; raises `MissingDocument` if it is not known whether the document
        exists."""
        found = self._find(name, _FETCH, name)
        if found is None:
            raise MissingDocument(name)
        return found[1]

    def digests(self, among: Sequence[str] | None = None) -> dict[str, str]:
        """The digest of each document held, "" for one known not to exist; of `among`, or of
        all."""
        execute = self._file.connection.execute
        if among is None:
            return dict(execute("SELECT name, digest FROM held"))
        found: dict[str, str] = {}
        for at in range(0, len(among), _CHUNK):
            chunk = among[at : at + _CHUNK]
            query = f"SELECT name, digest FROM held WHERE name IN ({_marks(chunk)})"  # noqa: S608
            found |= dict(execute(query, chunk))
        return found

    def put_in_force(
        self, position: Position, documents: Mapping[str, HeldDocument], *, alone: bool = False
    ) -> None:
        """Store these documents; everything held is then at this position. Another epoch is another
        store: everything else goes. With `alone` too: nothing else is known at this position."""
        former = self.position
        other = alone or (bool(former.epoch) and former.epoch != position.epoch)
        count = len(documents) if other else self._count + len(documents)
        with self._file.transaction() as connection:
            if other:
                connection.execute("DELETE FROM held")
            connection.executemany(_STORE, [(name, *each) for name, each in documents.items()])
            self._set(connection, epoch=position.epoch, revision=position.revision)
            # In the same write: if there is no room to trim, nothing is in force.
            if count > MAX_DOCUMENTS:
                count = self._trim(connection)
        # All of it is on disk as one write. If we die here, the restart begins at the new revision.
        self.position, self._count = position, count

    def _trim(self, connection: sqlite3.Connection) -> int:
        """The documents left. Counts first: a replaced document was counted as another one."""
        if _count(connection) > MAX_DOCUMENTS:
            # A tenth at a time, so that not every new document causes a trim.
            query = _TRIM.format(_marks(self._required))
            connection.execute(query, (*self._required, MAX_DOCUMENTS // 10))
        return _count(connection)


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM held").fetchone()
    return int(count)


def _marks(names: Sequence[str]) -> str:
    """Parameters for so many names: a name never becomes part of a statement."""
    return ",".join("?" * len(names))
