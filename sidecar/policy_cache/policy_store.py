"""The state that both kinds of replica keep in the cache file beside their documents: the set's
position, when it was last confirmed, whose set it is and which key signs it. Knows nothing of how
documents arrive, nor of whether to trust them.
"""

import hashlib
import sqlite3
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NoReturn

from policies.sets.policy_set import NoPolicySet
from sidecar.policy_cache.cache_file import CacheFile
from sidecar.policy_cache.feed import Position
from sidecar.policy_cache.key_pin import KeyPin

_SET = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


class CacheDamaged(Exception):
    """the policy cache on disk can't be read"""


class PolicyStore(ABC):
    """A policy set in a `CacheFile`. `fetch` is what `PolicySet` reads through; `position` is the
    set in force, `as_of` when it was last confirmed (microseconds)."""

    # A sidecar that is switched from one kind of replica to the other keeps its file. Each kind
    # continues from its own documents; the tenant and the pin are common to both.
    _PREFIX: ClassVar[str]

    def __init__(self, file: CacheFile) -> None:
        self._file = file
        self._load()

    def _load(self) -> None:
        meta: dict[str, Any] = dict(self._file.connection.execute("SELECT name, value FROM meta"))
        self.tenant_id: str | None = meta.get("tenant_id")
        self.pin = KeyPin.from_meta(meta)
        prefix = self._PREFIX
        self.position = Position(meta.get(f"{prefix}epoch", ""), meta.get(f"{prefix}revision", 0))
        self.as_of: int | None = meta.get(f"{prefix}as_of")

    @property
    def damaged(self) -> bool:
        """True if a read found damage in the file or in a document."""
        return self._file.damaged

    @abstractmethod
    def fetch(self, name: str) -> bytes | None:
        """Return the body in force, or None if the tenant has no such document. Raises
        `NoPolicySet`, and `CacheDamaged` if the file can't be read or the body differs from what
        was stored."""

    def _find(self, name: str, query: str, *values: object) -> tuple[str, bytes | None] | None:
        """Return the digest and the body that `query` finds for this document. Raises like
        `fetch`."""
        found: tuple[str, bytes | None] | None
        found = next(iter(self._rows(query, values)), None)
        if found is None or found[1] is None:
            return found
        return found[0], self._verified(name, found[0], found[1])

    def _list(self, query: str, *values: object) -> list[tuple[str, bytes]]:
        """Return the names and bodies of the documents that `query` finds, by name, digest and
        body."""
        return [
            (name, self._verified(name, digest, body))
            for name, digest, body in self._rows(query, values)
        ]

    def _rows(self, query: str, values: tuple[object, ...]) -> list[Any]:
        if not self.position.epoch:
            raise NoPolicySet(NoPolicySet.__doc__)
        try:
            return self._file.connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            self._damage(f"the policy cache can't be read: {error}", error)

    def _verified(self, name: str, digest: str, body: bytes) -> bytes:
        # Check the digest on every read: a flipped bit on disk must not become an allowed source.
        if hashlib.sha256(body).hexdigest() != digest:
            self._damage(f"document `{name}` does not match its digest")
        return bytes(body)

    def _damage(self, why: str, cause: Exception | None = None) -> NoReturn:
        # The loop that keeps the replica current sees the flag, and starts over.
        self._file.damaged = True
        raise CacheDamaged(why) from cause

    def confirm(self, as_of: int) -> None:
        """Note that the set was current at `as_of` (microseconds)."""
        with self._file.transaction() as connection:
            self._set(connection, as_of=as_of)
        self.as_of = as_of

    def set_origin(self, tenant_id: str, pin: KeyPin) -> None:
        """Store whose policy set this is, and which key signs it."""
        # Called for every answer of the control API; a write costs more than the comparison.
        if (tenant_id, pin) == (self.tenant_id, self.pin):
            return
        with self._file.transaction() as connection:
            connection.executemany(_SET, {"tenant_id": tenant_id, **pin.to_meta()}.items())
        # Only after the write: if it fails, the next answer differs again and is stored then.
        self.tenant_id, self.pin = tenant_id, pin

    def start_over(self) -> None:
        """Set a damaged file aside and start empty, but keep the tenant and the key pin."""
        tenant_id, pin = self.tenant_id, self.pin
        self._file.start_over()
        self._load()
        # Without the pin, the next answer could name any key as the log's.
        if tenant_id is not None and pin is not None:
            self.set_origin(tenant_id, pin)

    def _set(self, connection: sqlite3.Connection, **values: str | int) -> None:
        connection.executemany(_SET, [(self._PREFIX + name, each) for name, each in values.items()])
