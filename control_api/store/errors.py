"""Distinguishes database faults, which may pass, from errors that would repeat. Knows no statement.

After a fault the client is asked to try again (503). Anything else is a bug or an unknown state,
and must not hide behind a 503.
"""

import sqlite3

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from policies.ground.errors import Unavailable

FAULTS = (DBAPIError, PoolTimeout, OSError)
"""The exceptions to catch around database work; `is_fault` then tells whether one is a fault."""

_STATEMENT_ERRORS = (IntegrityError, ProgrammingError, DataError, NotSupportedError)

_CONFLICTS = ("40001", "40P01")  # SQLSTATE: serialization failure, deadlock detected
_FEATURE_NOT_SUPPORTED = "0A000"


class UnknownState(Exception):
    """the database does not hold what this process left there: it must not be written to"""


class WriteFault(Unavailable):
    """the database does not accept the write at the moment; try again later"""


class ReadFault(Unavailable):
    """the database does not answer at the moment"""


def is_conflict(error: BaseException) -> bool:
    """Return whether PostgreSQL aborted the transaction because of another one, or because the
    schema changed under a prepared statement. Nothing of it was committed, and a retry can
    succeed."""
    if not isinstance(error, DBAPIError):
        return False
    # SQLite has no such state: its writers wait for each other instead of being aborted.
    state = getattr(error.orig, "sqlstate", None)
    # 0A000 has many causes. This one is "cached plan must not change result type".
    return state in _CONFLICTS or (state == _FEATURE_NOT_SUPPORTED and "cached" in str(error.orig))


def is_fault(error: BaseException) -> bool:
    """Return whether the database failed rather than the statement: a lock, a lost connection, a
    full disk."""
    if isinstance(error, DBAPIError):
        if error.connection_invalidated or is_conflict(error):
            return True
        # SQLAlchemy raises one class for a full disk and for a malformed statement on SQLite: only
        # the code tells them apart.
        code = getattr(error.orig, "sqlite_errorcode", None)
        return not isinstance(error, _STATEMENT_ERRORS) and code != sqlite3.SQLITE_ERROR
    return isinstance(error, (PoolTimeout, OSError))
