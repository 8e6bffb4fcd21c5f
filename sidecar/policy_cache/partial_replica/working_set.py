"""Keeps on disk the documents that this sidecar has used: the content of each, or the fact that it
does not exist, all at one revision. A change is put in force in one write, so the set never mixes
two revisions, even after a crash."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.policy_cache.feed import FeedFailed, Position
from sidecar.policy_cache.policy_store import CacheFile, PolicyStore
from sidecar.policy_cache.policy_view import MissingDocument
from sidecar.policy_cache.replica import ReplicaState

MAX_DOCUMENTS = 50_000
"""The most documents that are held, including those known not to exist. Limited because a caller
may try any number of names."""

_CHUNK = 500  # SQLite limits the parameters of one statement
_FETCH = "SELECT digest, body FROM held WHERE name = ?"
_TRIM = """
DELETE FROM held WHERE id IN (SELECT id FROM held WHERE name NOT IN ({}) ORDER BY id LIMIT ?)
"""
# A replaced document gets a new id, so `_TRIM` removes those that were stored longest ago.
_STORE = "INSERT OR REPLACE INTO held (name, digest, body) VALUES (?, ?, ?)"


class HeldDocument(NamedTuple):
    """A document in the working set: its digest and body, or "" and None if it does not exist."""

    digest: str
    body: bytes | None


ABSENT = HeldDocument("", None)


class WorkingSet(PolicyStore):
    """The documents that decisions have used, in a SQLite file. Names in `required` are never
    removed to make room; the list may change."""

    _PREFIX = "held_"

    def __init__(self, file: CacheFile, required: Sequence[str]) -> None:
        self._required = required
        super().__init__(file)

    def _load(self) -> None:
        super()._load()
        self._count = _count(self._file.connection)

    def fetch(self, name: str) -> bytes | None:
        """Return the body in force, or None if the tenant has no such document. Raises
        `MissingDocument` if it is not known whether the document exists, and the errors of
        `PolicyStore.fetch`."""
        found = self._find(name, _FETCH, name)
        if found is None:
            raise MissingDocument(name)
        return found[1]

    def digests(self, among: Sequence[str] | None = None) -> dict[str, str]:
        """Return the digests of the documents held, by name: of all, or of those named in `among`.
        The digest "" stands for a document that is known not to exist."""
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
        """Store these documents, and move the whole set to `position`. All other documents are
        removed if the epoch is new, since they are another store's, or if `alone` says that nothing
        else is known at this position."""
        former = self.position
        other = alone or (bool(former.epoch) and former.epoch != position.epoch)
        count = len(documents) if other else self._count + len(documents)
        with self._file.transaction() as connection:
            if other:
                connection.execute("DELETE FROM held")
            connection.executemany(_STORE, [(name, *each) for name, each in documents.items()])
            self._set(connection, epoch=position.epoch, revision=position.revision)
            # Trim in the same write: if there is no room to trim, nothing is put in force.
            if count > MAX_DOCUMENTS:
                count = self._trim(connection)
        # All of it is on disk, in one write. After a crash here, the restart begins at the new
        # revision.
        self.position, self._count = position, count

    def _trim(self, connection: sqlite3.Connection) -> int:
        """Delete documents if there are too many. Returns how many are left."""
        # Counted again, since the caller's count includes replaced documents twice.
        if _count(connection) > MAX_DOCUMENTS:
            # A tenth at a time, so that not every new document causes a trim.
            query = _TRIM.format(_marks(self._required))
            connection.execute(query, (*self._required, MAX_DOCUMENTS // 10))
        return _count(connection)


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM held").fetchone()[0])


def _marks(names: Sequence[str]) -> str:
    """Return one SQL parameter mark per name: a name never becomes part of the statement itself."""
    return ",".join("?" * len(names))


@dataclass(frozen=True, slots=True)
class PartialState(ReplicaState):
    """The state of a partial replica. `required` are the documents that every decision of this
    sidecar needs. `blocked` returns the reason why this sidecar may not decide according to the
    documents held; None if it may decide."""

    working_set: WorkingSet
    required: Sequence[str]
    blocked: Callable[[], str | None]

    def require_unblocked(self) -> None:
        """Raise `FeedFailed` if this sidecar may not decide, and treat the policy set as stale
        then."""
        # Redis does not check our API key. So the sidecar itself looks in the documents that
        # arrive whether its key is still live.
        if (why := self.blocked()) is not None:
            self.freshness.expire(why)
            raise FeedFailed(why)
