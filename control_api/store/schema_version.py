"""Which schema a database has, and how it gets to the one that this version knows. Knows alembic,
and no table of ours."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from control_api.store.url import Unusable

MIGRATIONS = Path(__file__).with_name("migrations")
_LOCK = 0x51D1CE  # of ours alone: two replicas that migrate at once go one after the other


def _config() -> Config:
    config = Config()
    # A percent sign would be an interpolation in the format that alembic borrows.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def head() -> str:
    """The revision that this version knows as its last."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def at_head(connection: Connection) -> None:
    """`Unusable` where the schema is older than ours, newer, or not there."""
    present = _present(connection)
    if present != head():
        stands = "has no schema yet" if present is None else f"has the schema `{present}`"
        raise Unusable(
            f"the database {stands}, and this version needs `{head()}`: run `sluice migrate`"
        )


def to_head(connection: Connection) -> None:
    """Every missing migration, in the transaction that the caller began. `Unusable` where the
    schema is newer than ours: an older version must not write to it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if _present(connection) == head():
        return
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _present(connection: Connection) -> str | None:
    present = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if present is not None and present not in known:
        raise Unusable(
            f"the database has the schema `{present}`, which is newer than this version knows"
        )
    return present
