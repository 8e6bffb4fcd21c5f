"""Parses a database URL, and explains in one line why the database can't be opened, without the
password or the URL's parameters. The cause of a `DatabaseUnreachable` may pass, while that of an
`UnusableDatabase` lasts until an operator changes something. Any other error is a bug."""

import errno
import os
import sqlite3
import ssl

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from policies.ground.errors import worded


class UnusableDatabase(Exception):
    """the database can't be used as it is; the service does not start"""


def parse_url(url: str) -> URL:
    """Return the URL with the driver that Sluice uses. Raises `UnusableDatabase` if `url` names no
    supported database; the message never contains the password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UnusableDatabase("the database URL can't be parsed") from None
    if "@" in (parsed.host or ""):
        # A part of the password was parsed as the host, which every error message shows.
        raise UnusableDatabase(
            "the user or password in the database URL contains `@`: write it as `%40`"
        )
    kind = parsed.drivername
    if kind in ("sqlite", "sqlite+aiosqlite"):
        if parsed.database in (None, "", ":memory:") or parsed.query:
            raise UnusableDatabase(
                "a SQLite URL needs a file path and takes no parameters: "
                "an acknowledged record must outlive the process"
            )
        return parsed.set(drivername="sqlite+aiosqlite")
    if kind in ("postgresql", "postgresql+asyncpg"):
        return parsed.set(drivername="postgresql+asyncpg")
    raise UnusableDatabase(
        f"database `{kind}` is not supported: use `sqlite` or `postgresql+asyncpg`"
    )


# SQLSTATE classes: connection exception, transaction rollback, invalid authorization, invalid
# catalog name, insufficient resources, object not in prerequisite state, operator intervention
# (starting up, shutting down), system error. See PostgreSQL's documentation, appendix A.
_TRANSIENT_CLASSES = ("08", "40", "28", "3D", "53", "55", "57", "58")
_INSUFFICIENT_PRIVILEGE = "42501"
_READ_ONLY_TRANSACTION = "25006"  # a standby that is not promoted yet
_SQLITE_TRANSIENT = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
)
_SQLITE_PERMANENT = (
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_PRIMARY_CODE = 0xFF
"""The mask for the primary code in SQLite's extended error codes, which is their lower byte."""


class DatabaseUnreachable(Exception):
    """the database can't be used at the moment; it may be later"""


def translate_error(error: BaseException, url: URL) -> Exception | None:
    """Translate an error raised while the database at `url` was opened or first used into
    `DatabaseUnreachable` or `UnusableDatabase`.

    Returns None if the error is neither (a bug), or if it already is one of them.
    """
    where = _where(url)
    if isinstance(error, TimeoutError | PoolTimeout):
        return DatabaseUnreachable(f"{where}: no answer in time")
    if url.get_backend_name() == "sqlite":
        return _from_sqlite(error, where)
    if isinstance(error, OSError):
        return DatabaseUnreachable(f"{where}: {_describe(error)}")
    return _from_postgresql(error, where) if isinstance(error, DBAPIError) else None


def _from_sqlite(error: BaseException, where: str) -> Exception | None:
    if isinstance(error, OSError):
        kind = DatabaseUnreachable if error.errno in _DISK_FULL else UnusableDatabase
        return kind(f"{where}: {worded(error)}")
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    if code is None:
        return None
    reason = _first_line(getattr(error, "orig", None))
    # SQLite words it itself, and loses the system's number.
    full = code & _PRIMARY_CODE == sqlite3.SQLITE_FULL
    message = f"{where}: ENOSPC ({reason})" if full else f"{where}: {reason}"
    if code & _PRIMARY_CODE in _SQLITE_TRANSIENT:
        return DatabaseUnreachable(message)
    return UnusableDatabase(message) if code & _PRIMARY_CODE in _SQLITE_PERMANENT else None


def _from_postgresql(error: DBAPIError, where: str) -> Exception | None:
    # SQLAlchemy's adapter prefixes the message with the driver's class name. Its cause is the
    # driver's own error, which has only the server's words.
    adapted: BaseException | None = error.orig
    own = adapted.__cause__ if adapted is not None and adapted.__cause__ is not None else adapted
    state = getattr(adapted, "sqlstate", None)
    message = f"{where}: {_first_line(own)}"
    if state is None and not error.connection_invalidated:
        # The driver rejects a parameter of the URL before it connects.
        if "root certificate file" in message:
            message += ": set PGSSLROOTCERT to the file with your authority's certificate"
        return UnusableDatabase(message)
    if state is None or state.startswith(_TRANSIENT_CLASSES) or state == _READ_ONLY_TRANSACTION:
        return DatabaseUnreachable(message)
    return UnusableDatabase(message) if state == _INSUFFICIENT_PRIVILEGE else None


def _where(url: URL) -> str:
    """Return the database's address, without user, password and parameters."""
    if url.get_backend_name() == "sqlite":
        return f"`{url.database}`"
    if url.host is None and (hosts := url.query.get("host")):
        return f"PostgreSQL at `{hosts if isinstance(hosts, str) else ', '.join(hosts)}`"
    host, port = url.host or "localhost", url.port or 5432
    return f"PostgreSQL at `[{host}]:{port}`" if ":" in host else f"PostgreSQL at `{host}:{port}`"


def _describe(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or 'the handshake failed').lower().replace('_', ' ')}"
    # Prefer the error number: asyncio's own text repeats the address.
    numbered = error.errno is not None and error.errno > 0
    text = os.strerror(error.errno or 0) if numbered else error.strerror
    return text.lower() if text else _first_line(error)


def _first_line(error: BaseException | None) -> str:
    """Return the first line of an error's message. A server's DETAIL and HINT follow on further
    lines, and may repeat values."""
    return str(error).partition("\n")[0] or type(error).__name__
