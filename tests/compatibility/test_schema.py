"""The previous version's code works on this version's tables: migrations since then only add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, inspect, text

from control_api.store.schema.version import MIGRATIONS, READABLE_SINCE, head
from tests.compatibility.exchanges import RECORDED, restore

# Table: column: type, whether it takes NULL, and whether it has a default.
Tables = dict[str, dict[str, tuple[str, bool, bool]]]


def database(folder: Path, revision: str) -> Engine:
    """A database as the migrations up to `revision` leave it."""
    engine = create_engine(f"sqlite:///{folder / revision}.db")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    return engine


def tables(engine: Engine) -> Tables:
    found = inspect(engine)
    return {
        table: {
            column["name"]: (str(column["type"]), bool(column["nullable"]), has_default(column))
            for column in found.get_columns(table)
        }
        for table in found.get_table_names()
    }


def has_default(column: Any) -> bool:
    return column["default"] is not None


def unique(engine: Engine, table: str) -> set[tuple[str, ...]]:
    found = inspect(engine)
    keys: list[list[str | None]] = [list(found.get_pk_constraint(table)["constrained_columns"])]
    keys += [list(each["column_names"]) for each in found.get_unique_constraints(table)]
    keys += [list(each["column_names"]) for each in found.get_indexes(table) if each["unique"]]
    return {tuple(map(str, key)) for key in keys}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Engine]:
    folder = tmp_path_factory.mktemp("schemas")
    return database(folder, READABLE_SINCE), database(folder, head())


def test_everything_that_the_previous_version_reads_is_there(
    engines: tuple[Engine, Engine],
) -> None:
    before, now = map(tables, engines)
    for table, columns in before.items():
        for column, (kind, _, _) in columns.items():
            assert column in now.get(table, {}), f"{table}.{column} was dropped"
            assert now[table][column][0] == kind, f"the type of {table}.{column} has changed"


def test_every_row_that_the_previous_version_writes_is_accepted(
    engines: tuple[Engine, Engine],
) -> None:
    before, now = map(tables, engines)
    for table, columns in before.items():
        for column, (_, nullable, default) in now[table].items():
            # It writes no value for a column that it does not know, and NULL where it could.
            known = columns.get(column)
            required = not nullable and not default if known is None else not nullable and known[1]
            assert not required, f"{table}.{column} refuses the previous version's rows"
        # Rows that leave a new column NULL never conflict in a key with that column.
        null = {name for name, (_, nullable, _) in now[table].items() if nullable} - set(columns)
        added = unique(engines[1], table) - unique(engines[0], table)
        tighter = {key for key in added if not null & set(key)}
        assert not tighter, f"{table} has a new unique key, {tighter}"


def test_the_previous_revision_is_the_schema_that_the_previous_version_left(
    engines: tuple[Engine, Engine], tmp_path: Path
) -> None:
    """To the letter: its tables were made by its own migrations, which are one step today."""
    restore(sorted(path.name for path in RECORDED.iterdir())[-1], tmp_path / "data")
    recorded = create_engine(f"sqlite:///{tmp_path / 'data' / 'sluice.db'}")
    assert ddl(recorded) == ddl(engines[0])
    with recorded.connect() as connection:
        query = text("SELECT version_num FROM alembic_version")
        assert connection.execute(query).scalar() == READABLE_SINCE
    recorded.dispose()


def ddl(engine: Engine) -> dict[str, str]:
    """The SQL that SQLite stores for each table and index."""
    query = text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    with engine.connect() as connection:
        return {name: " ".join(sql.split()) for name, sql in connection.execute(query)}
