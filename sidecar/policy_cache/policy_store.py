"""Keeps a replica in a SQLite file: its documents, and beside them the state that both kinds of
replica need. That is the set's position, when it was last confirmed, which tenant it belongs to and
which key signs it.

All of it can be fetched again: a damaged file, or one of another schema version, is set aside and
replaced by an empty one. Everything runs on the event loop: a read takes a few microseconds, and a
write does not wait for the disk.
"""

import hashlib
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from policies.sets.policy_set import NoPolicySet
from sidecar.policy_cache.feed import Position
from sidecar.policy_cache.key_pin import KeyPin

log = logging.getLogger(__name__)

_SCHEMA_VERSION = 2
_FILE_NAME = "policy.db"
# A replaced document gets a new `held.id`, so the lowest ids are the oldest and are trimmed first.
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    generation INTEGER NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    digest TEXT NOT NULL,
    body BLOB,
    UNIQUE (generation, name, revision)
);
CREATE TABLE held (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    body BLOB
);
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    agent_role TEXT NOT NULL,
    agent_id TEXT,
    expires_at INTEGER NOT NULL
);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
"""

_SET = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


class CacheFile:
    """The SQLite file of the policy cache, open. A reader that finds damage sets `damaged`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE_NAME
        self.damaged = False
        self.connection = self._open()

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction: commit all its writes, or none of them and raise
        `sqlite3.Error`."""
        try:
            with self.connection as connection:
                # Take the write lock at once: a later upgrade from a read lock could fail halfway.
                connection.execute("BEGIN IMMEDIATE")
                yield connection
        except sqlite3.OperationalError as error:
            # For example a full disk: the file itself is whole. Named by its setting and not by its
            # path, since readiness shows this to anyone.
            # SQLite has its own words for it, and loses the system's error number.
            full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
            why = f"{f'ENOSPC ({error})' if full else error} at `{_FILE_NAME}` of `cache`"
            raise sqlite3.OperationalError(why) from error
        except sqlite3.DatabaseError:
            self.damaged = True
            raise

    def start_over(self) -> None:
        """Set the damaged file aside for inspection, and start with an empty one."""
        self.connection.close()
        self._set_aside()
        self.connection = self._create()
        self.damaged = False

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._path.exists():
            return self._create()
        try:
            return self._open_existing()
        except sqlite3.DatabaseError as error:
            log.warning("policy cache `%s` is set aside: %s", self._path, error)
            self._set_aside()
            return self._create()

    def _open_existing(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != _SCHEMA_VERSION:
                why = f"its schema version is {version}, not {_SCHEMA_VERSION}"
                raise sqlite3.DatabaseError(why)
            # Checked once, at the start. Later damage shows in the digest of each document read.
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection

    def _create(self) -> sqlite3.Connection:
        # The file holds key digests and policies, so only this user may read it. Create it before
        # SQLite does, which would use the process's umask.
        self._path.touch(mode=0o600)
        connection = self._connect()
        connection.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version={_SCHEMA_VERSION};COMMIT;")
        return connection

    def _connect(self) -> sqlite3.Connection:
        # No implicit transactions: `transaction` begins and ends its own.
        connection = sqlite3.connect(self._path, isolation_level=None, cached_statements=32)
        connection.execute("PRAGMA journal_mode=WAL")
        # A commit does not wait for the disk: what a power cut loses is fetched again.
        connection.execute("PRAGMA synchronous=NORMAL")
        # A negative size is in KiB.
        connection.execute("PRAGMA cache_size=-1024")
        return connection

    def _set_aside(self) -> None:
        # Only the last damaged file is kept: a failing disk must not fill itself with them.
        self._path.replace(self._path.with_suffix(".damaged"))
        # These belong to the old file: SQLite could replay them into the new one.
        for journal in ("-wal", "-shm"):
            self._path.with_name(_FILE_NAME + journal).unlink(missing_ok=True)


class CacheDamaged(Exception):
    """the policy cache on disk can't be read"""


class PolicyStore(ABC):
    """A policy set in a `CacheFile`. `PolicySet` reads documents through `fetch`. `position` is the
    position of the set in force, and `as_of` the time when it was last confirmed (microseconds)."""

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
        `NoPolicySet` without a set, and `CacheDamaged` if the file can't be read or the body
        differs from what was stored."""

    def _find(self, name: str, query: str, *values: object) -> tuple[str, bytes | None] | None:
        """Return the digest and body of the document that `query` finds; None if it finds none.
        Raises the errors of `fetch`."""
        for digest, body in self._rows(query, values):
            return digest, None if body is None else self._verified(name, digest, body)
        return None

    def _list(self, query: str, *values: object) -> list[tuple[str, bytes]]:
        """Return the names and verified bodies of the documents that `query` finds. The query must
        select name, digest and body."""
        rows = self._rows(query, values)
        return [(name, self._verified(name, digest, body)) for name, digest, body in rows]

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
        """Store that the set was current at `as_of` (microseconds)."""
        with self._file.transaction() as connection:
            self._set(connection, as_of=as_of)
        self.as_of = as_of

    def set_origin(self, tenant_id: str, pin: KeyPin) -> None:
        # Called for every answer of the control API; a write costs more than the comparison.
        if (tenant_id, pin) == (self.tenant_id, self.pin):
            return
        with self._file.transaction() as connection:
            connection.executemany(_SET, {"tenant_id": tenant_id, **pin.to_meta()}.items())
        # Only after the write: if it fails, the next answer differs again and is stored then.
        self.tenant_id, self.pin = tenant_id, pin

    def start_over(self) -> None:
        tenant_id, pin = self.tenant_id, self.pin
        self._file.start_over()
        self._load()
        # Without the pin, the next answer could name any key as the log's.
        if tenant_id is not None and pin is not None:
            self.set_origin(tenant_id, pin)

    def _set(self, connection: sqlite3.Connection, **values: str | int) -> None:
        connection.executemany(_SET, [(self._PREFIX + name, each) for name, each in values.items()])
