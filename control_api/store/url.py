"""Parses a database URL. Opens no database."""

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError


class UnusableDatabase(Exception):
    """the database can't be used as it is; the service does not start"""


def parse_url(url: str) -> URL:
    """The URL with the driver that Sluice uses. Raises `UnusableDatabase` if `url` names no
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
