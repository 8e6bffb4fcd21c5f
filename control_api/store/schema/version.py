"""Checks and upgrades the schema of a database. Knows only alembic's own table and the folder of
migrations.

Alembic is imported only when there is something to migrate: the import would take a fifth of the
start-up time, and hardly any start migrates.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from control_api.store.url import UnusableDatabase

MIGRATIONS = Path(__file__).parents[1] / "migrations"
_LOCK = 0x51D1CE  # the key of an advisory lock: two replicas migrate one after the other


def revisions() -> list[str]:
    """The revisions that this version of Sluice knows, oldest first, from their files' names."""
    return sorted(each.name.partition("_")[0] for each in MIGRATIONS.glob("versions/0*.py"))


def head() -> str:
    """The newest revision that this version of Sluice knows."""
    return revisions()[-1]


def require_head(connection: Connection) -> None:
    """Raises `UnusableDatabase` if the schema is missing, older or newer."""
    present = _present(connection)
    if present != head():
        found = "has no schema yet" if present is None else f"has the schema `{present}`"
        raise UnusableDatabase(
            f"the database {found}, and this version needs `{head()}`: run `sluice migrate`"
        )


def upgrade_to_head(connection: Connection) -> None:
    """Applies every missing migration, in the caller's transaction. Raises `UnusableDatabase` if
    the schema is newer than this version, which must then not write to it."""
    # On SQLite, the BEGIN IMMEDIATE of the caller is the lock.
    if connection.dialect.name == "postgresql":
        # Released when the transaction ends, so a process that dies in it blocks no other.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    # Read under the lock: another replica may have migrated while this one waited.
    if _present(connection) == head():
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Alembic's options use configparser's syntax, where a percent sign interpolates.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _present(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    present = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if present is not None and present not in revisions():
        raise UnusableDatabase(
            f"the database has the schema `{present}`, which is newer than this version knows"
        )
    return present
