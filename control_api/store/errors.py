"""Which errors of a database are the database's. Knows no statement.

A fault may pass: the caller is told to come again. Anything else is a mistake of ours or a state
that we don't know, and is not hidden behind a 503.
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
"""What a fault can be an instance of; `is_fault` tells."""

_OURS = (IntegrityError, ProgrammingError, DataError, NotSupportedError)

_CLASHES = ("40001", "40P01")  # a serialisation failure, a deadlock
_UNSUPPORTED = "0A000"


class UnknownState(Exception):
    """what the database holds is not what this process left there: it must not be written to"""


class WriteFault(Unavailable):
    """the record can't be kept at the moment: the database does not take it"""


class ReadFault(Unavailable):
    """the database does not answer at the moment"""


def is_conflict(error: BaseException) -> bool:
    """Whether PostgreSQL gave the transaction up for another's sake, or because the schema moved
    under a prepared statement: nothing of it is there, and done again it will do."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state in _CLASHES or (state == _UNSUPPORTED and "cached" in str(error.orig))


def is_fault(error: BaseException) -> bool:
    """Whether the database failed, not the statement: a lock, a lost connection, a full disk."""
    if isinstance(error, DBAPIError):
        if error.connection_invalidated or is_conflict(error):
            return True
        # SQLite has one class for a full disk and for a statement that makes no sense.
        code = getattr(error.orig, "sqlite_errorcode", None)
        return not isinstance(error, _OURS) and code != sqlite3.SQLITE_ERROR
    return isinstance(error, (PoolTimeout, OSError))
