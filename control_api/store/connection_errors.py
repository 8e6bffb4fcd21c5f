"""Why a database can't be opened: one line for an operator, without a password or a URL's
parameters. Knows the error codes of both databases; opens neither.

`DatabaseUnreachable` may pass, and is worth another attempt. `UnusableDatabase` stays until
someone changes
something. Any other error is a bug of ours, and keeps its traceback.
"""

import errno
import os
import sqlite3
import ssl

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from control_api.store.url import UnusableDatabase

# By SQLSTATE class: connection, transaction rollback, authorization, unknown database, resources,
# not in the right state, operator intervention (starting up, shutting down), system error.
_MAY_PASS = ("08", "40", "28", "3D", "53", "55", "57", "58")
_NO_PRIVILEGE = "42501"
_READ_ONLY = "25006"  # a standby that was not promoted yet
_SQLITE_MAY_PASS = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
)
_SQLITE_STAYS = (
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PRIMARY = 0xFF
"""The lower byte of SQLite's extended error codes."""


class DatabaseUnreachable(Exception):
    """the database can't be used at the moment; it may be later"""


def translate_error(error: BaseException, url: URL) -> Exception | None:
    """`error`, raised while the database at `url` was opened or first used, as
    `DatabaseUnreachable` or
    `UnusableDatabase`; None where it is neither, so a bug of ours, and where it is one already."""
    where = _where(url)
    if isinstance(error, TimeoutError | PoolTimeout):
        return DatabaseUnreachable(f"{where}: no answer in time")
    if url.get_backend_name() == "sqlite":
        return _of_sqlite(error, where)
    if isinstance(error, OSError):
        return DatabaseUnreachable(f"{where}: {_said(error)}")
    return _of_postgresql(error, where) if isinstance(error, DBAPIError) else None


def _of_sqlite(error: BaseException, where: str) -> Exception | None:
    if isinstance(error, OSError):
        kind = DatabaseUnreachable if error.errno in _FULL else UnusableDatabase
        return kind(f"{where}: {_said(error)}")
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    if code is None:
        return None
    said = f"{where}: {_first_line(getattr(error, 'orig', None))}"
    if code & _PRIMARY in _SQLITE_MAY_PASS:
        return DatabaseUnreachable(said)
    return UnusableDatabase(said) if code & _PRIMARY in _SQLITE_STAYS else None


def _of_postgresql(error: DBAPIError, where: str) -> Exception | None:
    # SQLAlchemy's adapter puts the driver's class before the message; the driver's own error has
    # the server's words alone.
    adapted: BaseException | None = error.orig
    own = adapted.__cause__ if adapted is not None and adapted.__cause__ is not None else adapted
    state = getattr(adapted, "sqlstate", None)
    said = f"{where}: {_first_line(own)}"
    if state is None and not error.connection_invalidated:
        return UnusableDatabase(
            said
        )  # the driver refuses a parameter of the URL, before it connects
    if state is None or state.startswith(_MAY_PASS) or state == _READ_ONLY:
        return DatabaseUnreachable(said)
    return UnusableDatabase(said) if state == _NO_PRIVILEGE else None


def _where(url: URL) -> str:
    """Without user, password and parameters."""
    if url.get_backend_name() == "sqlite":
        return f"`{url.database}`"
    host, port = url.host or "localhost", url.port or 5432
    return f"PostgreSQL at `[{host}]:{port}`" if ":" in host else f"PostgreSQL at `{host}:{port}`"


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or 'the handshake failed').lower().replace('_', ' ')}"
    # By number where there is one: asyncio's own text repeats the address.
    numbered = error.errno is not None and error.errno > 0
    text = os.strerror(error.errno or 0) if numbered else error.strerror
    return text.lower() if text else _first_line(error)


def _first_line(error: BaseException | None) -> str:
    """A server's DETAIL and HINT follow on further lines, and may repeat values."""
    return str(error).partition("\n")[0] or type(error).__name__
