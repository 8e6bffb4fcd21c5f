"""Which database a URL names. Opens none."""

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError


class UnusableDatabase(Exception):
    """the database can't be used as it is; the service does not start"""


def parse_url(url: str) -> URL:
    """`UnusableDatabase` where `url` names no database that we can use; the message shows no
    password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UnusableDatabase("the database URL can't be read") from None
    if "@" in (parsed.host or ""):
        # The rest of the password would be taken for the host, and told in every error.
        raise UnusableDatabase("the user or password holds an `@`: write it as `%40`")
    kind = parsed.drivername
    if kind in ("sqlite", "sqlite+aiosqlite"):
        if parsed.database in (None, "", ":memory:") or parsed.query:
            raise UnusableDatabase(
                "SQLite needs the path of a file and nothing more: "
                "an acknowledged record must outlive the process"
            )
        return parsed.set(drivername="sqlite+aiosqlite")
    if kind in ("postgresql", "postgresql+asyncpg"):
        return parsed.set(drivername="postgresql+asyncpg")
    raise UnusableDatabase(
        f"`{kind}` is no database of ours: `sqlite` and `postgresql+asyncpg` are"
    )
