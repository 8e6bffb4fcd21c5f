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


class UnknownState(Exception):
    """what the database holds is not what this process left there: it must not be written to"""


class WriteFault(Unavailable):
    """the record can't be kept at the moment: the database does not take it"""


class ReadFault(Unavailable):
    """the database does not answer at the moment"""


def is_fault(error: BaseException) -> bool:
    """Whether the database failed, not the statement: a lock, a lost connection, a full disk."""
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return True
        # SQLite has one class for a full disk and for a statement that makes no sense.
        code = getattr(error.orig, "sqlite_errorcode", None)
        return not isinstance(error, _OURS) and code != sqlite3.SQLITE_ERROR
    return isinstance(error, (PoolTimeout, OSError))
