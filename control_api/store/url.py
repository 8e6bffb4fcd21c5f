"""Parses a database URL. Opens no database."""

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError


class UnusableDatabase(Exception):
    """the database can't be used as it is; the service does not start"""


def parse_url(url: str) -> URL:
    """Raises `UnusableDatabase` if `url` names no supported database. The message never contains
    the password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UnusableDatabase("the database URL can't be parsed") from None
    if "@" in (parsed.host or ""):
        # Part of the password would be parsed as the host, and so appear in every error.
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
