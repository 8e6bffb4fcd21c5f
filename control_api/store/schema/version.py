"""Checks and upgrades the schema of a database. Knows only alembic's own table, a mark beside it,
and the folder of migrations.

The mark names the oldest revision whose code works on these tables. It tells a version that does
not know a newer schema whether it may run on it. So an upgrade can be rolled back, and a process
that dies during one can start again.

Alembic is imported only when there is something to migrate: the import would take a fifth of the
start-up time, and hardly any start migrates.
"""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from control_api.store.url import UnusableDatabase

MIGRATIONS = Path(__file__).parents[1] / "migrations"
READABLE_SINCE = "0007"
"""The oldest revision whose code reads and writes the tables of `head()`: the newest one of the
previous minor version. Migrations since then only add (README.md, "Migrations while the service
runs"); a test compares the tables."""
_MARK = "readable since "
_LOCK = 0x51D1CE  # the key of an advisory lock: two replicas migrate one after the other


@dataclass(frozen=True, slots=True)
class Migration:
    """The result of a migration: the schema's revision before it (None without a schema), and after
    it."""

    before: str | None
    after: str

    def __str__(self) -> str:
        if self.before is None:
            return f"the database had no schema, and has `{self.after}` now"
        if self.before != self.after:
            return f"the database's schema was `{self.before}`, and is `{self.after}` now"
        if self.after != head():
            return (
                f"nothing to do: the database has the schema `{self.after}`, which is newer than "
                f"this version's `{head()}`; this version can use it"
            )
        return f"nothing to do: the database has the schema `{self.after}` of this version"


def revisions() -> list[str]:
    """Return the revisions that this version of Sluice knows, oldest first, from the names of their
    files."""
    return sorted(each.name.partition("_")[0] for each in MIGRATIONS.glob("versions/0*.py"))


def head() -> str:
    return revisions()[-1]


def require_head(connection: Connection) -> None:
    """Raise `UnusableDatabase` if the schema is missing or older, or so much newer that this
    version can't use it."""
    present = _present(connection)
    if present is None or present < head():
        found = "has no schema yet" if present is None else f"has the schema `{present}`"
        raise UnusableDatabase(
            f"the database {found}, and this version needs `{head()}`: run `sluice migrate`"
        )


def upgrade_to_head(connection: Connection, *, finish: bool = False) -> Migration:
    """Apply every missing migration, in the caller's transaction. A newer schema stays as it is.
    With `finish`, no older version can use the tables from now on. Raises `UnusableDatabase` if
    this version must not write to them."""
    # On SQLite, the BEGIN IMMEDIATE of the caller is the lock.
    if connection.dialect.name == "postgresql":
        # Released when the transaction ends, so a process that dies in it blocks no other.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    # Read under the lock: another replica may have migrated while this one waited.
    present = _present(connection)
    if present is None or present < head():
        _upgrade(connection)
    elif present > head():
        return Migration(present, present)
    # No older version has used new tables. On SQLite, their rows look the same to it.
    unused = present is None and connection.dialect.name == "postgresql"
    since = head() if finish or unused else READABLE_SINCE
    # Never lower: rows that the older version can't read may have been written since.
    if (_readable_since(connection) or "") < since:
        _mark(connection, since)
    return Migration(present, head())


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Alembic's options use configparser's syntax, where a percent sign interpolates.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _present(connection: Connection) -> str | None:
    """Return the schema's revision; None if there is no schema. Raises `UnusableDatabase` if it is
    newer than this version can use, or a step between two releases, which only development versions
    made."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    present = None if found is None else str(found)
    if present is not None and present not in revisions():
        if present < head():
            after = next(each for each in revisions() if each > present)
            raise UnusableDatabase(
                f"the database has the schema `{present}`, which was never released: first run "
                f"`sluice migrate` of a development version that has both `{present}` and "
                f"`{after}`, or start with a new database"
            )
        since = _readable_since(connection)
        if since is None or since > head():
            raise UnusableDatabase(
                f"the database has the schema `{present}`, which is newer than this version knows"
            )
    return present


def _readable_since(connection: Connection) -> str | None:
    """Read the mark of the oldest revision that can use the tables; None if there is no mark."""
    if connection.dialect.name == "sqlite":
        number = connection.execute(text("PRAGMA user_version")).scalar()
        return f"{number:04}" if number else None
    query = "SELECT obj_description('alembic_version'::regclass, 'pg_class')"
    comment = connection.execute(text(query)).scalar()
    return str(comment).removeprefix(_MARK) if str(comment).startswith(_MARK) else None


def _mark(connection: Connection, since: str) -> None:
    # Neither a table nor a column, so that no version needs a migration or a privilege to read it;
    # a dump keeps the comment, and a copy of the file the number. Neither takes a parameter.
    if connection.dialect.name == "sqlite":
        connection.execute(text(f"PRAGMA user_version = {int(since)}"))
    else:
        connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{_MARK}{since}'"))
