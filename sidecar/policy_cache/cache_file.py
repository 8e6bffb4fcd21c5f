"""One SQLite file of data that can be fetched again. Knows its tables, and how to start over.

It is never the only copy. A file that is damaged, or has another schema version, is set aside and
replaced by an empty one. Everything runs on the event loop's thread: a read takes a few
microseconds, and a write does not wait for the disk.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


class CacheFile:
    """The open file. A reader that finds damage sets `damaged`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE_NAME
        self.damaged = False
        self.connection = self._open()

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit all of the block's writes, or none and raise `sqlite3.Error`."""
        try:
            with self.connection as connection:
                # Take the write lock at once: a later upgrade from a read lock could fail halfway.
                connection.execute("BEGIN IMMEDIATE")
                yield connection
        except sqlite3.OperationalError as error:
            # For example a full disk: the file itself is whole. Named by its setting and not by its
            # path, since readiness shows this to anyone.
            raise sqlite3.OperationalError(f"{_worded(error)} at `{_FILE_NAME}` of `cache`") from (
                error
            )
        except sqlite3.DatabaseError:
            self.damaged = True
            raise

    def start_over(self) -> None:
        """Set a damaged file aside for inspection, and start with an empty one."""
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
                raise sqlite3.DatabaseError(
                    f"its schema version is {version}, not {_SCHEMA_VERSION}"
                )
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


def _worded(error: sqlite3.Error) -> str:
    # SQLite has its own words for it, and loses the system's error number.
    full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
    return f"ENOSPC ({error})" if full else str(error)
