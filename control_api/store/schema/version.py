"""Which schema a database has, and how it gets to the one that this version knows. Knows alembic's
table and its folder of migrations, and no table of ours.

Alembic itself is imported where something is to be migrated: it takes a fifth of a start, and
hardly any start has something to migrate.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from control_api.store.url import UnusableDatabase

MIGRATIONS = Path(__file__).parents[1] / "migrations"
_LOCK = 0x51D1CE  # of ours alone: two replicas that migrate at once go one after the other


def revisions() -> list[str]:
    """What this version knows, the last one at the end: a file is called by its revision."""
    return sorted(each.name.partition("_")[0] for each in MIGRATIONS.glob("versions/0*.py"))


def head() -> str:
    """The revision that this version knows as its last."""
    return revisions()[-1]


def require_head(connection: Connection) -> None:
    """`UnusableDatabase` where the schema is older than ours, newer, or not there."""
    present = _present(connection)
    if present != head():
        stands = "has no schema yet" if present is None else f"has the schema `{present}`"
        raise UnusableDatabase(
            f"the database {stands}, and this version needs `{head()}`: run `sluice migrate`"
        )


def upgrade_to_head(connection: Connection) -> None:
    """Every missing migration, in the transaction that the caller began. `UnusableDatabase` where
    the
    schema is newer than ours: an older version must not write to it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if _present(connection) == head():
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    # A percent sign would be an interpolation in the format that alembic borrows.
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
